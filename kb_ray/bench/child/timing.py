"""Event times of repeated calls on a GPU, and the statistics made of them.

`timed_calls` runs in the process that owns the code; `ratio` and `summary` run in the judge. The first
call, compilation and tuning are outside: the caller warms up. Neither decides what may be trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kb_ray.bench.child import provenance, wire
from kb_ray.bench.child.rotation import Rotation
from kb_ray.records import Timing

_TRIM = 0.1
_AROUND_S = 120e-6
"""What the host spends on a timed call beside the call itself: inputs put in place, two events, a flush."""
_LONGEST_HOLD_S = 0.1
SHARED_CALLS = 3
"""Calls over which the share of own kernels is taken."""
_CYCLES_PER_S = 2e9
"""Clock of a recent GPU; a slower one is held a little longer."""


def timed_calls(
    run: Callable[[Any], Any], inputs: Rotation, warmup: int, trials: int, flush: torch.Tensor
) -> tuple[list[float], list[tuple[wire.Tree, list[torch.Tensor]]]]:
    """Milliseconds of `trials` calls over rotating `inputs`, and the last output for each input set.

    Zeroing `flush`, larger than any L2 cache, evicts the inputs and lets the queue fill, so that a short
    kernel is not timed by the speed of Python.
    """
    provenance.poison_allocations(False)
    try:
        values, n = inputs.values, len(inputs.values)
        kept: list[Any] = [None] * n
        host_s = 0.0
        for i in range(warmup):
            inputs.prepare(i, looked_at=False)
            torch.cuda.synchronize()
            started = time.perf_counter()
            run(values[i % n])
            host_s = time.perf_counter() - started
        torch.cuda.synchronize()
        _hold_queue(trials * (host_s + _AROUND_S))
        pairs = []
        for i in range(trials):
            looked_at = i >= trials - n
            inputs.prepare(i, looked_at)
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            output = run(values[i % n])
            end.record()
            pairs.append((start, end))
            if looked_at:
                kept[i % n] = inputs.keep(output)
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs], kept
    finally:
        provenance.poison_allocations(True)


def own_share(run: Callable[[Any], Any], inputs: Rotation, flush: torch.Tensor) -> float | None:
    """Share of a call's GPU time that launches of the candidate's own kernels take; None where there is none."""
    _hold_queue(_LONGEST_HOLD_S / 10)
    spans: list[tuple[Any, Any]] = []
    provenance.WATCH.spans, whole = spans, []
    try:
        for i in range(SHARED_CALLS):
            inputs.prepare(i, looked_at=False)
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run(inputs.values[i % len(inputs.values)])
            end.record()
            whole.append((start, end))
        torch.cuda.synchronize()
    finally:
        provenance.WATCH.spans = None
    own, total = (sum(start.elapsed_time(end) for start, end in pairs) for pairs in (spans, whole))
    return min(1.0, own / total) if total > 0 else None


def _hold_queue(host_s: float) -> None:
    """Keep the GPU busy for about as long as the host needs to queue a block, at most a tenth of a second.

    Otherwise the first calls of a block, and every call of a short kernel, are timed by the speed of Python.
    """
    torch.cuda._sleep(int(min(1.5 * host_s, _LONGEST_HOLD_S) * _CYCLES_PER_S))


def summary(times_ms: Sequence[float]) -> Timing:
    """Median, 10 % trimmed mean and standard deviation of the times, all samples kept."""
    ordered = np.sort(np.asarray(times_ms, dtype=np.float64))
    cut = int(len(ordered) * _TRIM)
    kept = ordered[cut : len(ordered) - cut] if len(ordered) > 2 * cut else ordered
    return Timing(
        median_ms=float(np.median(ordered)),
        trimmed_mean_ms=float(kept.mean()),
        std_ms=float(ordered.std(ddof=1)) if len(ordered) > 1 else 0.0,
        n=len(ordered),
        samples_ms=tuple(float(t) for t in times_ms),
    )


def ratio(reference_ms: Sequence[float], kernel_ms: Sequence[float]) -> tuple[float, float, float]:
    """Speedup as ratio of medians, with the 95 % bootstrap interval (2,000 resamples, fixed seed)."""
    reference, kernel = np.asarray(reference_ms), np.asarray(kernel_ms)
    draw = np.random.default_rng(0)
    a = np.median(draw.choice(reference, (2000, len(reference))), axis=1)
    b = np.median(draw.choice(kernel, (2000, len(kernel))), axis=1)
    spread = np.sort(a / b)
    low, high = (float(spread[int(share * len(spread))]) for share in (0.025, 0.975))
    return float(np.median(reference) / np.median(kernel)), low, high
