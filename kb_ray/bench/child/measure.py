"""The exclusive part of a verdict: candidate and reference timed in turn on one GPU.

Blocks alternate between the two sides, so that clocks and temperature drift alike for both; outputs of drawn
calls are checked on inputs never seen before. What cannot be excluded comes out as a flag, after a
second look; what cannot be at all as `hack`. Holds nothing but what one measurement needs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kb_ray.bench.child import blame
from kb_ray.bench.child.cases import Case, Loaded, mutates, size_of
from kb_ray.bench.child.children import Child
from kb_ray.bench.child.clock import agrees, claim_holds, per_call_ms, put_back_ms, varying_ms
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.looks import SLOT, Looks
from kb_ray.bench.child.machine import Machine
from kb_ray.bench.child.quiet import is_quiet
from kb_ray.bench.child.references import References, calls_of
from kb_ray.bench.child.rotation import Vary, again, anew, on_top
from kb_ray.bench.child.timing import ratio, summary
from kb_ray.bench.protocol import BenchSettings
from kb_ray.records import Environment, ErrorDetail, Status, Timing

BLOCKS = 5
ROUNDS = 3
"""Rounds of trials at most: a second and third one only where the first leaves a doubt."""
NARROW, WIDE = 0.1, 0.4
"""Width of the 95 % interval over the ratio: below the first no further round, above the second no trust."""
REWARM = 3
"""Untimed calls at the start of each later block: the GPU has just served the other process."""
SPEEDUP_CEILING = 100.0
"""Above this a speedup is measured again, and still not believed: it is kept, flagged and never a reward."""
PASSES = 3
"""Of repeated calls, where the clocks are apart after one."""
PROBES, SETTLING_S = 3, 0.5
"""How the GPU is looked at when one side's turn is over, and how long it is waited for."""
HEAT = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
"""Reasons for a lower clock that make a window worthless. The power cap holds both sides alike."""


@dataclass
class Measured:
    """Times of both sides and their ratio (speedup, low, high), or why there are none."""

    kernel: Timing | None = None
    reference: Timing | None = None
    compiled: Timing | None = None
    ratio: tuple[float, float, float] = (0.0, 0.0, 0.0)
    share: float | None = None
    env: Environment = field(default_factory=Environment)
    flags: set[str] = field(default_factory=set)
    status: Status = Status.OK
    error: ErrorDetail | None = None


class Measurement:
    """One measurement. Inputs were lent to both sides before; while it is run, the caller holds the GPU alone."""

    def __init__(
        self, child: Child, program: str, references: References, loaded: Loaded, cases: list[Case],
        settings: BenchSettings, machine: Machine,
    ) -> None:  # fmt: skip
        self.child, self.program, self.references, self.loaded = child, program, references, loaded
        self.cases, self.settings, self.machine = cases, settings, machine
        self.sizes = _block_sizes(settings.n_trials)
        self.looks = Looks(child, cases, len(self.sizes), settings.timeout_s)
        self.kernel: list[float] = []
        self.reference: list[float] = []
        self.share: float | None = None
        self.calls = self.launches = 0
        self.persisting = False
        """Whether a part of the L2 cache was set aside, which flushing does not reach."""
        self.restless = False
        """Whether the candidate left work on the GPU when it was the other side's turn."""

    def begin(self) -> None:
        """What a side's first timed call costs once, while others may still use the GPU: memory, and parts of PyTorch
        that are loaded when they are first needed. Candidates are new processes, in which nearly all of them are."""
        request = calls_of(self.cases) | {"program": self.program, "warmup": 1, "trials": 0, "looked": SLOT}
        self.child.ask(Kind.TIME, request, self.settings.timeout_s)

    def run(self) -> Measured:
        measured = Measured()
        for _ in range(ROUNDS):
            # What was measured in a window that was no good is measured again, and only that counts.
            if HEAT & set(measured.env.throttle):
                self.kernel, self.reference = [], []
            doubts = self._round(measured)
            if not doubts or measured.status is not Status.OK:
                break
        if measured.status is Status.OK:
            measured.flags |= doubts - {"imprecise"}
            measured.kernel, measured.reference = summary(self.kernel), summary(self.reference)
            measured.share = self.share
            if self.settings.baseline == "compile":
                block = self._reference_block(self.settings.n_warmup, self.settings.n_trials, compiled=True)
                measured.compiled = summary(block)
        return measured

    def check(self, measured: Measured) -> None:
        """Whether the calls that were looked at gave the right outputs."""
        if measured.status is Status.OK:
            with self.child.sharing():
                measured.error = self.looks.wrong()
            measured.status = Status.MISMATCH if measured.error else Status.OK

    def _round(self, measured: Measured) -> set[str]:
        """Time all blocks once more; what there is still to doubt."""
        if self.calls:
            self.check(measured)
            if measured.status is not Status.OK:
                return set()
            self.looks.begin()
        throttle = set(self.machine.now().throttle)
        wall_ms = claimed_ms = 0.0
        for i, size in enumerate(self.sizes):
            warmup = REWARM if self.kernel else self.settings.n_warmup
            self.reference += self._reference_block(warmup, size)
            wall, times = self._kernel_block(warmup, size, share=i == len(self.sizes) - 1)
            wall_ms, claimed_ms = wall_ms + wall, claimed_ms + sum(times)
            self.kernel += times
        now = self.machine.now()
        measured.env = now.model_copy(update={"throttle": tuple(sorted(throttle | set(now.throttle)))})
        self._convict(measured)
        if measured.status is not Status.OK:
            return set()
        measured.ratio = ratio(self.reference, self.kernel)
        return self._doubts(measured, claimed_ms > wall_ms)

    def _convict(self, measured: Measured) -> None:
        """What no honest candidate can have reported."""
        if not all(math.isfinite(t) and t > 0 for t in self.kernel):
            self._hack(measured, "the reported times are not positive numbers")
        elif self.persisting:
            self._hack(measured, "a part of the L2 cache is set aside, so that inputs survive between timed calls")
        elif self.launches < self.calls:
            said = f"{self.calls} timed calls launched kernels of the code {self.launches} times"
            self._hack(measured, f"{said}: every call must, also when it is timed (no replay of recorded work)")

    def _hack(self, measured: Measured, message: str) -> None:
        measured.status, measured.error = Status.HACK, blame.detail(Status.HACK, message)

    def _doubts(self, measured: Measured, overclaimed: bool) -> set[str]:
        speedup, low, high = measured.ratio
        width = (high - low) / speedup
        doubts = {"unstable_timing" if width > WIDE else "imprecise"} if width > NARROW else set()
        if speedup > SPEEDUP_CEILING:
            doubts.add("speedup_ceiling")
        if HEAT & set(measured.env.throttle):
            doubts.add("throttled")
        kernel_ms, reference_ms = summary(self.kernel).median_ms, summary(self.reference).median_ms
        doubts |= self._below_floors(kernel_ms, reference_ms)
        if overclaimed or not self._clock_agrees(kernel_ms, reference_ms):
            doubts.add("clock_disagrees")
        if self.restless:
            doubts.add("gpu_busy")
        return doubts

    def _below_floors(self, kernel_ms: float, reference_ms: float) -> set[str]:
        """Floors that the reference itself falls below say nothing: it need not read all that it is given."""
        case, limits, doubts = self.cases[0], self.machine.limits, set[str]()
        memory = limits.memory_floor_ms(size_of(case.inputs), size_of(case.outputs))
        if kernel_ms < memory <= reference_ms:
            doubts.add("below_memory_floor")
        floats = [t.element_size() * 8 for t in (*case.inputs, *case.weights) if t.is_floating_point()]
        arithmetic = limits.arithmetic_floor_ms(self.loaded.flops, max(floats, default=32))
        if kernel_ms < arithmetic <= reference_ms:
            doubts.add("below_arithmetic_floor")
        return doubts

    def _clock_agrees(self, kernel_ms: float, reference_ms: float) -> bool:
        """Whether the judge's own clock, over plain repeated calls, bears out what was reported."""
        slope = per_call_ms(self._repeat_kernel, kernel_ms)
        if agrees(kernel_ms, slope):
            return True
        between_ms = self._between_ms()
        slope = max(0.0, per_call_ms(self._repeat_kernel, kernel_ms, PASSES) - between_ms)
        if agrees(kernel_ms, slope):
            return True
        reference_slope = max(0.0, per_call_ms(self._repeat_reference, reference_ms, PASSES) - between_ms)
        return claim_holds(kernel_ms, reference_ms, slope, reference_slope)

    def _between_ms(self) -> float:
        """What lies between two repeated calls and is no one's work: changing inputs, and putting back what calls
        change."""
        with self._still():
            if mutates(self.cases):
                return min(put_back_ms(case.inputs) for case in self.cases) + self._varying_ms(anew)
            return self._varying_ms(on_top if len(self.cases) > 1 else again)

    def _varying_ms(self, how: Vary) -> float:
        return varying_ms(self.cases[0].inputs, self.cases[0].plans, how)

    def _repeat_kernel(self, calls: int) -> None:
        """So many calls. That they are over is not only said: the GPU has nothing more to do."""
        request = calls_of(self.cases) | {
            "program": self.program, "calls": calls, "looked": SLOT, "looks": self.looks.in_repeats(calls),
        }  # fmt: skip
        answer = self.child.ask(Kind.REPEAT, request, self.settings.timeout_s)
        self._settle(PROBES)
        self.looks.told(answer.get("trees"))

    def _repeat_reference(self, calls: int) -> None:
        with self._still():
            self.references.repeat(self.loaded, self.cases, calls, self.settings)

    def _reference_block(self, warmup: int, size: int, compiled: bool = False) -> list[float]:
        with self._still():
            return self.references.time(self.loaded, self.cases, warmup, size, self.settings, compiled)

    @contextmanager
    def _still(self) -> Iterator[None]:
        """The candidate stands still meanwhile, and so must the GPU before: it could slow the other side down."""
        self.child.pause()
        try:
            self._settle(PROBES)
            yield
        finally:
            self.child.resume()

    def _settle(self, probes: int) -> None:
        """Wait until the GPU has nothing to do, for a while."""
        began = time.monotonic()
        while not is_quiet(probes):
            if time.monotonic() - began > SETTLING_S:
                self.restless = True
                return

    def _kernel_block(self, warmup: int, size: int, share: bool) -> tuple[float, list[float]]:
        """One block of the candidate's calls: milliseconds by the judge's clock, and what was reported."""
        request = calls_of(self.cases) | {
            "program": self.program, "warmup": warmup, "trials": size, "share": share, "looked": SLOT,
            "looks": self.looks.in_block(size),
        }  # fmt: skip
        started = time.perf_counter()
        answer = self.child.ask(Kind.TIME, request, self.settings.timeout_s)
        wall_ms = (time.perf_counter() - started) * 1000
        times, launches = as_times(answer.get("times_ms"), size), answer.get("launches")
        self.calls += warmup + size
        self.launches += launches if type(launches) is int else 0
        self.persisting |= answer.get("persisting") != 0
        self.looks.told(answer.get("trees"))
        if share and isinstance(answer.get("share"), float):
            self.share = min(max(float(answer["share"]), 0.0), 1.0)
        return wall_ms, times


def as_times(reported: Any, count: int) -> list[float]:
    """Times as a child reports them; NaN, which convicts, where they are not `count` plain numbers."""
    if isinstance(reported, list | tuple) and len(reported) == count and all(type(t) is float for t in reported):
        return list(reported)
    return [math.nan]


def _block_sizes(trials: int) -> list[int]:
    # Every block has a call for each of the two input sets, so that both have an output to look at.
    blocks = max(1, min(BLOCKS, trials // 2))
    return [trials // blocks + (1 if i < trials % blocks else 0) for i in range(blocks)]
