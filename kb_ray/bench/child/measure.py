"""The exclusive part of a verdict: candidate and reference timed in turn on one GPU.

Blocks alternate between the two sides, so that clocks and temperature drift alike for both; the outputs
of timed calls are checked on inputs never seen before. What cannot be excluded comes out as a flag.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from kb_ray.bench.child import blame
from kb_ray.bench.child.cases import Case, Loaded, mutates
from kb_ray.bench.child.checking import timed_outputs_right
from kb_ray.bench.child.children import Child
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.machine import Machine
from kb_ray.bench.child.references import References
from kb_ray.bench.child.timing import ratio, summary
from kb_ray.bench.protocol import BenchSettings
from kb_ray.records import Environment, ErrorDetail, Status, Timing

BLOCKS = 5
ROUNDS = 3
"""Rounds of trials at most: a second and third one only where the interval of the ratio stays wide."""
NARROW, WIDE = 0.1, 0.4
"""Width of the 95 % interval over the ratio: below the first no further round, above the second no trust."""
REWARM = 3
"""Untimed calls at the start of each later block: the GPU has just served the other process."""
SPEEDUP_CEILING = 100.0
"""Above this a speedup is not believed without a second look: it is kept, flagged and never a reward."""


@dataclass
class Measured:
    """Times of both sides and their ratio (speedup, low, high), or why there are none."""

    kernel: Timing | None = None
    reference: Timing | None = None
    ratio: tuple[float, float, float] = (0.0, 0.0, 0.0)
    env: Environment = field(default_factory=Environment)
    flags: set[str] = field(default_factory=set)
    status: Status = Status.OK
    error: ErrorDetail | None = None


def measure(
    child: Child,
    program: str,
    references: References,
    loaded: Loaded,
    cases: list[Case],
    settings: BenchSettings,
    machine: Machine,
) -> Measured:
    """Time both sides in alternating blocks. The caller holds the GPU alone; inputs are in the child."""
    measured = Measured()
    kernel: list[float] = []
    reference: list[float] = []
    throttled = set(machine.now().throttle)
    for _ in range(ROUNDS):
        for size in _block_sizes(settings.n_trials):
            warmup = REWARM if kernel else settings.n_warmup
            reference += references.time(loaded, cases, warmup, size, settings)
            kernel += _time_block(child, program, cases, warmup, size, settings, measured)
        measured.env = machine.now()
        throttled |= set(measured.env.throttle)
        if not all(math.isfinite(t) and t > 0 for t in kernel) or _width(reference, kernel) <= NARROW:
            break
    references.end_timing(cases, settings)
    if throttled - {"sw_power_cap"}:
        measured.flags.add("throttled")
    if not all(math.isfinite(t) and t > 0 for t in kernel):
        measured.status = Status.HACK
        measured.error = blame.detail(Status.HACK, "the reported times are not positive numbers")
        return measured
    measured.error = timed_outputs_right(child, cases, settings.timeout_s)
    if measured.error is not None:
        measured.status = Status.MISMATCH
        return measured
    measured.kernel, measured.reference = summary(kernel), summary(reference)
    measured.ratio = ratio(reference, kernel)
    if measured.ratio[0] > SPEEDUP_CEILING:
        measured.flags.add("speedup_ceiling")
    if _width(reference, kernel) > WIDE:
        measured.flags.add("unstable_timing")
    return measured


def _width(reference: list[float], kernel: list[float]) -> float:
    speedup, low, high = ratio(reference, kernel)
    return (high - low) / speedup


def _block_sizes(trials: int) -> list[int]:
    blocks = min(BLOCKS, trials)
    return [trials // blocks + (1 if i < trials % blocks else 0) for i in range(blocks)]


def _time_block(
    child: Child,
    program: str,
    cases: list[Case],
    warmup: int,
    trials: int,
    settings: BenchSettings,
    measured: Measured,
) -> list[float]:
    """One block of the candidate's calls, held against the judge's own clock."""
    request: dict[str, Any] = {
        "program": program, "inputs": [f"timed{i}" for i in range(len(cases))],
        "outputs": [f"timed_out{i}" for i in range(len(cases))], "warmup": warmup, "trials": trials,
        "restore": mutates(cases),
    }  # fmt: skip
    started = time.perf_counter()
    answer = child.ask(Kind.TIME, request, settings.timeout_s)
    wall_ms = (time.perf_counter() - started) * 1000
    times = [float(t) for t in answer["times_ms"]]
    if len(times) != trials or sum(times) > wall_ms:
        measured.flags.add("clock_disagrees")
    if not answer.get("launches"):
        measured.flags.add("no_launch_while_timed")
    return times
