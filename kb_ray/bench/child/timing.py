"""Event times of repeated calls on a GPU, and the statistics made of them.

`timed_calls` and `repeated_calls` run in the process that owns the code; `ratio` and `summary` run in the judge. The
first call, compilation and tuning are outside: the caller warms up. None of them decides what may be trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kb_ray.bench.child import provenance, wire
from kb_ray.bench.child.rotation import Rotation
from kb_ray.bench.child.strides import fill_alike
from kb_ray.bench.child.tree import flatten
from kb_ray.records import Timing

_TRIM = 0.1
_CALL_S = 1e-3
"""What the host spends on a call of several kernels, at most as a rule."""
_LONGEST_HOLD_S = 0.1
SHARED_CALLS = 3
"""Calls over which the share of own kernels is taken."""
_CYCLES_PER_S = 2e9
"""Clock of a recent GPU; a slower one is held a little longer."""
Looks = Mapping[int, Sequence[torch.Tensor]]
"""Calls whose outputs are compared, and the memory that these are copied into."""


def timed_calls(
    run: Callable[[Any], Any], inputs: Rotation, warmup: int, trials: int, flush: torch.Tensor, looks: Looks
) -> tuple[list[float], list[wire.Tree]]:
    """Milliseconds of `trials` calls over rotating `inputs`; the outputs of those in `looks` go where that says, and
    how each is built, in that order, is told.

    Zeroing `flush`, larger than any L2 cache, evicts the inputs and lets the queue fill, so that a short
    kernel is not timed by the speed of Python.
    """
    provenance.poison_allocations(False)
    try:
        host_s = 0.0
        for i in range(warmup):
            torch.cuda.synchronize()
            started = time.perf_counter()
            _timed_call(run, inputs, i, False, flush)
            host_s = time.perf_counter() - started
        torch.cuda.synchronize()
        _hold_queue((trials + len(looks)) * host_s)
        pairs, trees = [], dict[int, wire.Tree]()
        for i in range(trials):
            pair, output = _timed_call(run, inputs, i, i in looks, flush)
            pairs.append(pair)
            if i in looks:
                trees[i] = hand_over(output, looks[i])
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs], [trees[i] for i in looks]
    finally:
        provenance.poison_allocations(True)


def repeated_calls(run: Callable[[Any], Any], inputs: Rotation, calls: int, looks: Looks) -> list[wire.Tree]:
    """Plain calls one after the other, for whoever holds a clock of their own; all done when it returns.

    Outputs of calls in `looks` as with `timed_calls`.
    """
    provenance.poison_allocations(False)
    trees = dict[int, wire.Tree]()
    try:
        for i in range(calls):
            inputs.vary(i, i in looks)
            output = run(inputs.values[i % len(inputs.values)])
            if i in looks:
                trees[i] = hand_over(output, looks[i])
        torch.cuda.synchronize()
        return [trees[i] for i in looks]
    finally:
        provenance.poison_allocations(True)


def hand_over(output: Any, areas: Sequence[torch.Tensor]) -> wire.Tree:
    """Copy the tensors of an output into memory for exactly such, where they are; how it is built."""
    tree, tensors = flatten(output, canonical=True)
    fill_alike(areas, tensors)
    return tree


def _timed_call(
    run: Callable[[Any], Any], inputs: Rotation, call: int, looked_at: bool, flush: torch.Tensor
) -> tuple[tuple[torch.cuda.Event, torch.cuda.Event], Any]:
    """One call between two events, its inputs put in place and evicted from the L2 cache before."""
    inputs.prepare(call, looked_at)
    flush.zero_()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    output = run(inputs.values[call % len(inputs.values)])
    end.record()
    return (start, end), output


def own_share(run: Callable[[Any], Any], inputs: Rotation, flush: torch.Tensor) -> float | None:
    """Share of a call's GPU time that launches of the candidate's own kernels take; None where there is none.

    The whole is taken of other calls than the launches: events take microseconds, and those around a launch would
    count as time outside it.
    """
    spans: list[tuple[Any, Any]] = []
    # Filling fresh memory is our work, not the candidate's.
    provenance.poison_allocations(False)
    try:
        whole = _queued(run, inputs, flush)
        provenance.WATCH.spans = spans
        _queued(run, inputs, flush)
    finally:
        provenance.WATCH.spans = None
        provenance.poison_allocations(True)
    own, total = (sum(start.elapsed_time(end) for start, end in pairs) for pairs in (spans, whole))
    return min(1.0, own / total) if total > 0 else None


def _queued(run: Callable[[Any], Any], inputs: Rotation, flush: torch.Tensor) -> list[tuple[Any, Any]]:
    """Event pairs around a few calls, all queued before the first is run."""
    _hold_queue(SHARED_CALLS * _CALL_S)
    pairs = [_timed_call(run, inputs, i, False, flush)[0] for i in range(SHARED_CALLS)]
    torch.cuda.synchronize()
    return pairs


def _hold_queue(host_s: float) -> None:
    """Keep the GPU busy for about as long as the host needs to queue a block, at most a tenth of a second.

    Otherwise the first calls of a block, and every call of a short kernel, are timed by the speed of Python.
    """
    torch.cuda._sleep(int(min(1.3 * host_s, _LONGEST_HOLD_S) * _CYCLES_PER_S))


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
    spread = np.sort(_resampled_medians(reference, draw) / _resampled_medians(kernel, draw))
    low, high = (float(spread[int(share * len(spread))]) for share in (0.025, 0.975))
    return float(np.median(reference) / np.median(kernel)), low, high


def _resampled_medians(times: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Medians of 2,000 resamples; by partition, since the GPU is held while they are taken."""
    count = len(times)
    samples = np.partition(draw.choice(times, (2000, count)), (count // 2, (count - 1) // 2), axis=1)
    middle: np.ndarray = (samples[:, count // 2] + samples[:, (count - 1) // 2]) / 2
    return middle
