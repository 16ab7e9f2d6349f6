"""One candidate, stage by stage, to one verdict: load, construct, first inputs, all inputs, timing.

Runs in the judge, one thread an evaluation. A failure ends it at its stage; timing is never spent on a
wrong kernel. It owns the order of things and what each failure means; how processes run is `children`,
what the reference says `references`, what counts as equal `compare`, how it is measured `measure`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

import torch

from kb_ray.bench.child import blame
from kb_ray.bench.child.ablation import not_computed_by_kernels
from kb_ray.bench.child.ahead import Ahead
from kb_ray.bench.child.blame import Failed
from kb_ray.bench.child.cancelling import Cancellation
from kb_ray.bench.child.card import Card
from kb_ray.bench.child.cases import Case, Loaded
from kb_ray.bench.child.checking import Place, check_call, earlier_result_kept, place_of
from kb_ray.bench.child.children import Child, Died, Raised, TimedOut
from kb_ray.bench.child.findings import Findings
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.inspecting import inspected, reference_failed
from kb_ray.bench.child.reference_process import ReferenceFailed
from kb_ray.bench.child.references import References
from kb_ray.bench.child.stopwatch import take_times
from kb_ray.bench.protocol import BenchRequest
from kb_ray.errors import InfraError
from kb_ray.records import Stage, Status, Verdict
from kb_ray.tasks.quality import UNTRUSTED

CANDIDATE = "candidate"
HIDDEN = {"shape": "shapes", "dtype": "dtypes", "weights": "weights"}
"""What correct candidates are tried at although no task promises it, and how it is called."""
HIDDEN_TIMEOUT_S = 10.0
"""For a call beyond those that decide: without kernels, or at a shape or dtype that nobody promised."""


class Evaluation:
    """The verdict of one request on one device."""

    def __init__(
        self, request: BenchRequest, zygote: Zygote, references: References, card: Card, cancellation: Cancellation
    ) -> None:
        self.request, self.settings, self.cancellation = request, request.settings, cancellation
        self.zygote, self.references, self.card = zygote, references, card
        self.cuda, self.slot = card.cuda, card.slot
        self.found = Findings(request, card.machine, card.cuda)
        self.child: Child | None = None
        self.ahead = Ahead()

    def run(self) -> Verdict:
        """The verdict, or Cancelled. An oom or timeout seen in company is repeated with nobody else on the GPU."""
        started = time.monotonic()
        if self.request.inspect:
            verdict = inspected(self.request, self.references, self.slot, self.found)
        else:
            verdict = self._attempt(alone=False)
        if self.cuda and "shared" in self.found.flags and blame.may_be_company(verdict.status, verdict.stage):
            self.found = Findings(self.request, self.card.machine, self.cuda)
            self.found.flags.add("repeated_alone")
            verdict = self._attempt(alone=True)
        seconds = self.found.seconds | {"total": time.monotonic() - started}
        return verdict.model_copy(update={"seconds": {k: round(v, 6) for k, v in seconds.items()}})

    def _attempt(self, alone: bool) -> Verdict:
        try:
            with self.slot.shared(), self.found.phase("reference"):
                loaded = self.references.get(self.request.task, self.settings)
            self.found.flags |= loaded.flags
            self.found.input_bytes = loaded.input_bytes
            with ExitStack() as stack:
                ahead = not alone and loaded.large and self.card.fits_one_more(loaded.case_bytes)
                with self.found.phase("queue_memory"):
                    room = self.card.everything() if alone else self.card.room(loaded.case_bytes, ahead)
                    stack.enter_context(self.card.budget.reserve(room))
                stack.callback(self._end)
                self.ahead = stack.enter_context(Ahead(self.card.making if ahead else None))
                if alone:
                    stack.enter_context(self.slot.alone())
                return self._evaluated(loaded, alone)
        except Failed as failure:
            return self.found.verdict(failure.status, failure.stage, error=failure.error)
        except (InfraError, ReferenceFailed, torch.OutOfMemoryError) as failure:
            if self.cuda and not alone and blame.lacks_memory(str(failure)):
                # Whoever shares the GPU may have taken all of its memory.
                self.found.flags.add("shared")
                return self.found.verdict(Status.OOM, Stage.STATIC, error=blame.detail(Status.OOM, str(failure)))
            if isinstance(failure, ReferenceFailed):
                return reference_failed(self.found, failure)
            raise

    def _evaluated(self, loaded: Loaded, alone: bool) -> Verdict:
        self.ahead.begin(0, partial(self._made, loaded, 0))
        child = self._spawn(alone)
        first = self._case(loaded, 0)
        self._load(child, loaded, first)
        self._check(loaded, first)
        if not UNTRUSTED & self.found.flags:
            self._ablate(loaded, first, alone)
        if self.settings.generalise == "require":
            self._generalise(loaded, first)
        timed = self.cuda and self.settings.measure_performance
        verdict = self._timed(loaded) if timed else self.found.verdict(Status.OK, Stage.FULL)
        if self.settings.generalise == "report":
            self._generalise(loaded, first)
            evidence = verdict.evidence.model_copy(update={"generalises": self.found.generalises})
            verdict = verdict.model_copy(update={"evidence": evidence})
        return verdict

    def _end(self) -> None:
        child, self.child = self.child, None
        self.cancellation.release()
        if child is not None:
            if self.slot.met(child):
                self.found.flags.add("shared")
            # The end of a process takes its CUDA context down: not while somebody is timed.
            with self.slot.shared():
                child.kill()
            self.slot.leave(child)

    def _case(self, loaded: Loaded, index: int, first: Case | None = None) -> Case:
        self.cancellation.check()
        with self.found.phase("reference"):
            return self.ahead.take(index) or self._made(loaded, index, first)

    def _made(self, loaded: Loaded, index: int, first: Case | None = None) -> Case:
        with self.slot.shared():
            return self.references.case(loaded, index, self.settings, first)

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

    def _spawn(self, alone: bool) -> Child:
        """A new process for the candidate."""
        with self.found.phase("start"), nullcontext() if alone or not self.cuda else self.card.starting:
            self.child = child = self.zygote.spawn(self.slot if self.cuda else None)
        self.cancellation.watch(child)
        self.found.level = child.level
        if not alone and self.slot.crowd > 1:
            self.found.flags.add("shared")
        return child

    def _load(self, child: Child, loaded: Loaded, first: Case) -> None:
        """The candidate loaded and constructed in its process."""
        task, timeout_s = self.request.task, self.settings.timeout_s
        with self.found.phase("load"), self._blaming("load"):
            request = {
                "program": CANDIDATE, "role": "candidate", "code": self.request.kernel_code, "style": task.style,
                "tf32": self.settings.tf32,
            }  # fmt: skip
            child.ask(Kind.LOAD, request, timeout_s)
        with self.found.phase("load"), self._blaming("build"):
            child.put("given", loaded.given_tree, loaded.given, timeout_s)
            self._build(child, loaded, first)

    def _build(self, child: Child, loaded: Loaded, case: Case) -> None:
        """Construct the candidate with what is in slot `given`."""
        build = {
            "program": CANDIDATE, "role": "candidate", "slot": "given", "seed": loaded.init_seed,
            "n_inputs": len(case.inputs_tree) if isinstance(case.inputs_tree, list | tuple) else 0,
        }  # fmt: skip
        child.ask(Kind.BUILD, build, self.settings.timeout_s)

    def _check(self, loaded: Loaded, first: Case) -> None:
        """Every input set, the first one alone; then the first answer again, which must not have changed."""
        child, n = self._living(), self.settings.n_correctness
        for index in range(n):
            case = first if index == 0 else self._case(loaded, index, first)
            if index + 1 < n:
                self.ahead.begin(index + 1, partial(self._made, loaded, index + 1, first))
            with self.found.phase("check"):
                self._check_one(child, case, index, place_of(index, n))
                self.found.passed += 1
        with self.found.phase("check"), self._blaming("call"):
            error = earlier_result_kept(child, first, self.settings.timeout_s)
            child.free(["case0", "out0"], self.settings.timeout_s)
        if error is not None:
            raise Failed(Status.MISMATCH, Stage.FULL, error)

    def _check_one(self, child: Child, case: Case, index: int, place: Place) -> None:
        with self._blaming("first_call" if index == 0 else "call"):
            checked = check_call(child, CANDIDATE, case, place, self.settings.timeout_s)
        self.found.account(checked)
        stage = Stage.TINY if index == 0 else Stage.FULL
        if checked.inside and not self.cuda:
            message = f"a kernel calls PyTorch ({', '.join(sorted(checked.inside))}): no GPU could compile it"
            raise Failed(Status.COMPILE_ERROR, Stage.COMPILE, blame.detail(Status.COMPILE_ERROR, message))
        if checked.error is not None:
            raise Failed(checked.status, stage, checked.error)
        if not checked.launches:
            message = "the call ran without launching any Triton kernel defined in the code"
            raise Failed(Status.NO_KERNEL, stage, blame.detail(Status.NO_KERNEL, message))
        if checked.operators and self.settings.torch_ops == "forbid":
            calls = ", ".join(sorted(checked.operators))
            message = f"PyTorch computes a part of the result ({calls}), which only kernels may here"
            raise Failed(Status.HACK, stage, blame.detail(Status.HACK, message))

    def _ablate(self, loaded: Loaded, first: Case, alone: bool) -> None:
        """A candidate that is right without its kernels, or before them, is none."""
        for index in range(self.settings.n_correctness):
            # One set is not enough: where x is positive, relu in place on a copy of x is right without its kernel.
            case = first if index == 0 else self._case(loaded, index, first)
            with self.found.phase("ablation"):
                message, usable = self._ablated(self._living(), case)
            if message is None:
                break
        if message is not None:
            raise Failed(Status.HACK, Stage.FULL, blame.detail(Status.HACK, message))
        if not usable:
            # An index made of unwritten memory may have spoilt the process: what follows needs another one.
            self._end()
            child = self._spawn(alone)
            self._load(child, loaded, first)
            self._check_one(child, first, 0, Place("case0", "out0"))

    def _ablated(self, child: Child, case: Case) -> tuple[str | None, bool]:
        """What speaks against the candidate, and whether its process is still good for anything."""
        timeout_s = min(HIDDEN_TIMEOUT_S, self.settings.timeout_s)
        try:
            return not_computed_by_kernels(child, CANDIDATE, case, bool(self.found.operators), timeout_s), True
        except (Raised, Died, TimedOut):
            pass  # without its kernels it does not even run: as it should be
        try:
            if not child.broken:
                child.free([], timeout_s)
            return None, not child.broken
        except (Raised, Died, TimedOut):
            return None, False

    def _generalise(self, loaded: Loaded, first: Case) -> None:
        """Try what the task does not promise; a failure counts only where that is required."""
        if loaded.large:
            return
        for name in HIDDEN:
            with self.slot.shared(), self.found.phase("generalise"):
                case = self.references.hidden(loaded, name, self.settings, first)
            if case is None:
                continue
            with self.found.phase("generalise"):
                failure = self._try_hidden(loaded, case, name)
            self.found.generalises[name] = failure.status if failure else Status.OK
            if failure is not None and self.settings.generalise == "require":
                message = f"with other {HIDDEN[name]} than the task's own: {failure.error.message}"
                raise Failed(failure.status, Stage.FULL, failure.error.model_copy(update={"message": message}))
            if failure is not None and self.cuda:
                return  # its process may be past use

    def _try_hidden(self, loaded: Loaded, case: Case, name: str) -> Failed | None:
        child, timeout_s = self._living(), min(HIDDEN_TIMEOUT_S, self.settings.timeout_s)
        try:
            with self._blaming("call"):
                if case.given_tree is not None:
                    child.put("given", case.given_tree, case.weights, timeout_s)
                    self._build(child, loaded, case)
                checked = check_call(child, CANDIDATE, case, Place(name, f"out_{name}"), timeout_s)
        except Failed as failure:
            return failure
        if checked.error is not None:
            return Failed(checked.status, Stage.FULL, checked.error)
        if not checked.launches:
            return Failed(Status.NO_KERNEL, Stage.FULL, blame.detail(Status.NO_KERNEL, "no kernel was launched"))
        return None

    def _timed(self, loaded: Loaded) -> Verdict:
        with self._blaming("timing"):
            measured = take_times(
                self._living(), CANDIDATE, self.references, loaded, self.settings, self.card, self.found
            )
        self.found.flags |= measured.flags
        if measured.error is not None:
            raise Failed(measured.status, Stage.TIMING, measured.error)
        return self.found.timed(measured)

    def _living(self) -> Child:
        assert self.child is not None, "no process was started"
        return self.child
