"""One candidate, stage by stage, to one verdict: load, construct, first inputs, all inputs, timing.

Runs in the judge, one thread an evaluation. A failure ends it at its stage; timing is never spent on a
wrong kernel. It owns the order of things and what each failure means; how processes run is `children`,
what the reference says `references`, what counts as equal `compare`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kb_ray.bench.child import blame
from kb_ray.bench.child.cases import Loaded
from kb_ray.bench.child.checking import Checked, check_call, earlier_result_kept
from kb_ray.bench.child.children import Child, Died, Raised, TimedOut
from kb_ray.bench.child.exclusive import Slot
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.machine import Machine
from kb_ray.bench.child.measure import Measured, measure
from kb_ray.bench.child.references import ReferenceFailed, References
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest
from kb_ray.records import ErrorDetail, Evidence, Stage, Status, Verdict

CANDIDATE = "candidate"


class Failed(Exception):
    """The candidate failed: the verdict is known."""

    def __init__(self, status: Status, stage: Stage, error: ErrorDetail) -> None:
        super().__init__(status)
        self.status, self.stage, self.error = status, stage, error


class Evaluation:
    """The verdict of one request on one device."""

    def __init__(
        self, request: BenchRequest, zygote: Zygote, references: References, slot: Slot, machine: Machine
    ) -> None:
        self.request, self.settings = request, request.settings
        self.zygote, self.references, self.slot, self.machine = zygote, references, slot, machine
        self.cuda = zygote.cuda
        self.seconds: dict[str, float] = {}
        self.passed = 0
        self.launches: dict[str, int] = {}
        self.operators: dict[str, int] = {}
        self.flags: set[str] = set(request.task.flags)
        self.level = "none"

    def run(self) -> Verdict:
        """The verdict. An oom or timeout seen while others shared the GPU is repeated alone."""
        started = time.monotonic()
        verdict = self._attempt(alone=False)
        shared_trouble = self.cuda and verdict.status in (Status.OOM, Status.TIMEOUT) and "shared" in self.flags
        if shared_trouble and verdict.stage is not Stage.TIMING:
            self._reset()
            verdict = self._attempt(alone=True)
        self.seconds["total"] = time.monotonic() - started
        return verdict.model_copy(update={"seconds": {k: round(v, 6) for k, v in self.seconds.items()}})

    def _reset(self) -> None:
        self.passed, self.launches, self.operators = 0, {}, {}
        self.flags = set(self.request.task.flags) | {"repeated_alone"}

    def _attempt(self, alone: bool) -> Verdict:
        child: Child | None = None
        try:
            with self.slot.alone() if alone else self.slot.shared():
                if not alone and self.slot.crowd > 1:
                    self.flags.add("shared")
                loaded = self._reference()
                with self._phase("start"):
                    child = self.zygote.spawn()
                self.level = child.level
                self._load(child, loaded)
                self._check(child, loaded)
            if not self.cuda:
                return self._verdict(Status.OK, Stage.FULL)
            return self._timed(child, loaded)
        except Failed as failure:
            return self._verdict(failure.status, failure.stage, error=failure.error)
        except ReferenceFailed as failure:
            error = blame.detail(Status.INFRA_ERROR, str(failure))
            self.flags.add("reference_failed")
            return self._verdict(Status.INFRA_ERROR, Stage.STATIC, error=error)
        finally:
            if child is not None:
                # The end of a process takes its CUDA context down: not while somebody is timed.
                with self.slot.shared():
                    child.kill()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def _reference(self) -> Loaded:
        with self._phase("reference"):
            loaded = self.references.get(self.request.task, self.settings)
            self.references.case(loaded, 0, self.settings)
        self.flags |= loaded.flags
        return loaded

    @contextmanager
    def _blaming(self, phase: str) -> Iterator[None]:
        """Turn what the child's process did into a failure of the candidate in this phase."""
        try:
            yield
        except Raised as error:
            raise Failed(*blame.blame_exception(error.info, phase, self.request.kernel_code, self.cuda)) from error
        except Died as end:
            raise Failed(
                *blame.blame_death(end.signal_number, end.exit_code, end.launching, end.log, phase, self.cuda)
            ) from end
        except TimedOut as error:
            raise Failed(*blame.blame_timeout(phase, self.settings.timeout_s)) from error

    def _load(self, child: Child, loaded: Loaded) -> None:
        task, timeout_s = self.request.task, self.settings.timeout_s
        with self._phase("load"), self._blaming("load"):
            request = {
                "program": CANDIDATE, "role": "candidate", "code": self.request.kernel_code, "style": task.style,
            }  # fmt: skip
            child.ask(Kind.LOAD, request, timeout_s)
        with self._phase("load"), self._blaming("build"):
            child.put("given", loaded.given_tree, loaded.given, timeout_s)
            first = self.references.case(loaded, 0, self.settings)
            build = {
                "program": CANDIDATE, "role": "candidate", "slot": "given", "seed": loaded.init_seed,
                "n_inputs": len(first.inputs_tree) if isinstance(first.inputs_tree, list | tuple) else 0,
            }  # fmt: skip
            child.ask(Kind.BUILD, build, timeout_s)

    def _check(self, child: Child, loaded: Loaded) -> None:
        """Every input set, the first one alone; then the first answer again, which must not have changed."""
        for index in range(self.settings.n_correctness):
            with self._phase("reference"):
                case = self.references.case(loaded, index, self.settings)
            with self._phase("check"):
                with self._blaming("first_call" if index == 0 else "call"):
                    checked = check_call(child, CANDIDATE, case, index, self.settings.timeout_s)
                self._account(checked)
                stage = Stage.TINY if index == 0 else Stage.FULL
                if checked.inside and not self.cuda:
                    message = f"a kernel calls PyTorch ({', '.join(sorted(checked.inside))}): no GPU could compile it"
                    raise Failed(Status.COMPILE_ERROR, Stage.COMPILE, blame.detail(Status.COMPILE_ERROR, message))
                if checked.error is not None:
                    raise Failed(checked.status, stage, checked.error)
                if not checked.launches:
                    message = "the call ran without launching any Triton kernel defined in the code"
                    raise Failed(Status.NO_KERNEL, stage, blame.detail(Status.NO_KERNEL, message))
                self.passed += 1
        first = self.references.case(loaded, 0, self.settings)
        with self._phase("check"), self._blaming("call"):
            error = earlier_result_kept(child, first, self.settings.timeout_s)
        if error is not None:
            raise Failed(Status.MISMATCH, Stage.FULL, error)

    def _account(self, checked: Checked) -> None:
        for name, count in checked.launches.items():
            self.launches[name] = self.launches.get(name, 0) + count
        for name, count in checked.operators.items():
            self.operators[name] = self.operators.get(name, 0) + count

    def _timed(self, child: Child, loaded: Loaded) -> Verdict:
        # Everything that can be prepared is prepared while others may still share the card.
        with self._phase("timing"):
            with self.slot.shared(), self._blaming("timing"):
                cases = [self.references.fresh(loaded, self.settings) for _ in range(2)]
                for i, case in enumerate(cases):
                    child.put(f"timed{i}", case.inputs_tree, case.inputs, self.settings.timeout_s)
            waited = time.monotonic()
            with self.slot.alone(), self._blaming("timing"):
                self.seconds["queue_timing"] = time.monotonic() - waited
                measured = measure(child, CANDIDATE, self.references, loaded, cases, self.settings, self.machine)
        self.flags |= measured.flags
        if measured.error is not None:
            raise Failed(measured.status, Stage.TIMING, measured.error)
        return self._timed_verdict(measured)

    def _timed_verdict(self, measured: Measured) -> Verdict:
        speedup, low, high = measured.ratio
        return self._verdict(
            Status.OK, Stage.TIMING, speedup=speedup, speedup_low=low, speedup_high=high,
            kernel_time=measured.kernel, reference_time=measured.reference, env=measured.env,
        )  # fmt: skip

    def _verdict(self, status: Status, stage: Stage, **fields: Any) -> Verdict:
        fields.setdefault("env", self.machine.describe())
        untrusted = self.flags - {"shared", "repeated_alone"}
        return Verdict.of(
            status,
            stage,
            # On a CPU the interpreter stands in for the GPU: a smoke test, never a reward.
            trusted=self.cuda and not untrusted and status is not Status.INFRA_ERROR,
            tests_passed=self.passed,
            tests_total=self.settings.n_correctness,
            verifier_version=VERIFIER_VERSION,
            evidence=Evidence(
                kernel_launches=sum(self.launches.values()),
                kernels=tuple(sorted(self.launches)),
                torch_ops=self.operators,
                sandbox_level=self.level,
                flags=tuple(sorted(self.flags)),
            ),
            **fields,
        )
