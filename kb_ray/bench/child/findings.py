"""What one evaluation has found so far, and the verdict that is made of it.

Holds counts, flags and times, and the rule of what may be trusted; decides no status.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kb_ray.bench.child.checking import Checked
from kb_ray.bench.child.machine import Machine
from kb_ray.bench.child.measure import Measured
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest, judged
from kb_ray.records import Evidence, Stage, Status, Verdict
from kb_ray.tasks.quality import PASSES_KERNELBENCH

NOTES = frozenset({"shared", "repeated_alone", "compile_failed", *PASSES_KERNELBENCH})
"""Flags that take no trust away: others were on the card, or a weaker check than this one would be fooled."""


class Findings:
    """Of one attempt at one request."""

    def __init__(self, request: BenchRequest, machine: Machine, cuda: bool) -> None:
        self.request, self.machine, self.cuda = request, machine, cuda
        self.seconds: dict[str, float] = {}
        self.passed = 0
        self.launches: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.flags: set[str] = set(request.task.flags)
        self.generalises: dict[str, str] = {}
        self.level = "none"
        self.share: float | None = None
        self.input_bytes: int | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.spent(name, time.monotonic() - started)

    def spent(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def account(self, checked: Checked) -> None:
        self.launches.update(checked.launches)
        self.operators.update(checked.operators)

    def timed(self, measured: Measured) -> Verdict:
        """The verdict on a correct candidate that was measured."""
        speedup, low, high = measured.ratio
        self.share = measured.share
        compiled = measured.compiled
        kernel_ms = measured.kernel.median_ms if measured.kernel else 0.0
        return self.verdict(
            Status.OK, Stage.TIMING, speedup=speedup, speedup_low=low, speedup_high=high,
            kernel_time=measured.kernel, reference_time=measured.reference, compiled_time=compiled,
            speedup_compiled=compiled.median_ms / kernel_ms if compiled else None, env=measured.env,
        )  # fmt: skip

    def verdict(self, status: Status, stage: Stage, **fields: Any) -> Verdict:
        fields.setdefault("env", self.machine.describe())
        return Verdict.of(
            status,
            stage,
            # On a CPU the interpreter stands in for the GPU: a smoke test, never a reward.
            trusted=self.cuda and not self.flags - NOTES and status is not Status.INFRA_ERROR,
            tests_passed=self.passed,
            tests_total=self.request.settings.n_correctness,
            verifier_version=VERIFIER_VERSION,
            judged=judged(self.request.task, self.request.kernel_code),
            evidence=Evidence(
                kernel_launches=self.launches.total(),
                kernels=tuple(sorted(self.launches)),
                torch_ops=dict(self.operators),
                kernel_time_share=self.share,
                generalises=self.generalises,
                input_bytes=self.input_bytes,
                sandbox_level=self.level,
                flags=tuple(sorted(self.flags)),
            ),
            **fields,
        )
