"""The judge's own clock against the times that a candidate's process reports.

A wall clock sees Python and the launch queue too, which event times do not; over two runs of repeated calls
the fixed part cancels, and what is left per call can only be longer than the GPU takes. The candidate cannot
make it shorter than its work is. Only where the clocks are apart, what the host spends on inputs between two calls is
taken off, though a GPU that is busy meanwhile may hide it: a false claim may be that much larger, some hundredths of a
millisecond an input. How calls are repeated is the caller's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import torch

from kb_ray.bench.child.changes import changes_by
from kb_ray.bench.child.plans import Plan
from kb_ray.bench.child.rotation import Vary
from kb_ray.bench.child.strides import duplicate, fill

SPAN_MS = 5.0
"""What the longer run of calls shall last at least, so that the clock of a process exchange does not matter."""
FEWEST, MOST = 8, 50
PASSES = 6
"""How often inputs are put back to see how long that takes."""
HOST_MS = 0.15
"""What launching from Python may cost per call beyond the GPU's time: a process that reports less than the
wall clock shows by more than this, and a quarter, is looked at."""
KEPT = 0.67
"""Share of a reported speedup that must hold by the wall clock too, where the two clocks are apart."""


def per_call_ms(repeat: Callable[[int], None], about_ms: float, passes: int = 1) -> float:
    """Milliseconds that one more call takes: `repeat(n)` makes n calls and waits for the last.

    `about_ms`: what a call is said to take, to choose n by. `passes`: how often each run is made, of which the shortest
    counts: what else a host does can only make it longer.
    """
    calls = round(SPAN_MS / about_ms) if about_ms > SPAN_MS / MOST else MOST
    many = max(FEWEST, min(MOST, calls))
    few = many // 4
    longer, shorter = (min(_wall_ms(repeat, n) for _ in range(passes)) for n in (many, few))
    return max(0.0, (longer - shorter) / (many - few))


def agrees(reported_ms: float, slope_ms: float) -> bool:
    """Whether the wall clock shows no more per call than was reported and than launching from Python may cost."""
    return slope_ms <= 1.25 * reported_ms + HOST_MS


def claim_holds(kernel_ms: float, reference_ms: float, kernel_slope_ms: float, reference_slope_ms: float) -> bool:
    """Whether the reported speedup holds by the wall clock too.

    Code that is slow in Python is no lie by itself; it is one where the speedup that it claims is gone when
    both sides are run as they are used.
    """
    return reference_slope_ms / kernel_slope_ms >= KEPT * reference_ms / kernel_ms


def put_back_ms(inputs: Sequence[torch.Tensor]) -> float:
    """Milliseconds that putting such inputs back takes on the GPU, at least: calls that change them are repeated with
    that."""
    copies = [duplicate(tensor) for tensor in inputs]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(PASSES)]
    for event in events:
        for copy, tensor in zip(copies, inputs, strict=True):
            fill(copy, tensor)
        event.record()
    torch.cuda.synchronize()
    return min(float(start.elapsed_time(end)) for start, end in itertools.pairwise(events))


def varying_ms(inputs: Sequence[torch.Tensor], plans: Sequence[Plan], how: Vary) -> float:
    """Milliseconds that changing elements of such inputs before a repeated call takes, at least."""
    changes = changes_by(plans, [duplicate(tensor) for tensor in inputs])

    def vary(calls: int) -> None:
        for _ in range(calls):
            how(changes)
        torch.cuda.synchronize()

    vary(FEWEST)
    return min(_wall_ms(vary, FEWEST) for _ in range(PASSES)) / FEWEST


def _wall_ms(repeat: Callable[[int], None], calls: int) -> float:
    started = time.perf_counter()
    repeat(calls)
    return (time.perf_counter() - started) * 1e3
