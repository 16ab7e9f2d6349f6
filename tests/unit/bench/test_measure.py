"""One measurement whole, with both sides in this process and a clock of the CPU in place of the GPU's events.

What is asked of either side, when, and what becomes of what it hands over; no time that is measured here says anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from kb_ray.bench.child import measure, program, wire
from kb_ray.bench.child.cases import Case, Loaded
from kb_ray.bench.child.inputs import variants
from kb_ray.bench.child.limits import Limits
from kb_ray.bench.child.measure import Measured, Measurement
from kb_ray.bench.child.plans import Plan, plans_of
from kb_ray.bench.child.references import calls_of, timed_slots
from kb_ray.bench.child.tolerance import Tolerance
from kb_ray.bench.child.tree import flatten
from kb_ray.bench.protocol import BenchSettings
from kb_ray.records import Environment, Status
from tests.fixtures_bench import ADD_RELU

Run = Callable[[list[torch.Tensor]], torch.Tensor]


class Clock:
    """An event that is over when it is recorded."""

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Clock) -> float:
        return (end.at - self.at) * 1e3 + 1e-4


class Code:
    """What a sandboxed process has loaded."""

    def __init__(self, run: Run) -> None:
        self.run = self.run_compiled = run


class Side:
    """A sandboxed process, as far as a measurement needs one; `doing` is the command that it follows."""

    def __init__(self, run: Run, cases: list[Case]) -> None:
        self.server = program.Server(None, "none", False, "/nowhere")  # type: ignore[arg-type]  # nobody is told
        self.server.programs["candidate"] = Code(run)  # type: ignore[assignment]  # it is called, and no more
        self.server.flush = torch.zeros(8)
        self.doing = 0
        for slot, case in zip(timed_slots(cases), cases, strict=True):
            self.put(slot, case.inputs_tree, case.inputs, 1.0, case.plans)

    def put(
        self, slot: str, tree: wire.Tree, tensors: list[torch.Tensor], timeout_s: float, plans: Sequence[Plan] = ()
    ) -> None:
        self.server.slots[slot] = held = program.Slot(tree)
        held.tensors, held.plans = [t.clone() for t in tensors], list(plans)

    def refill(self, slot: str, tensors: list[torch.Tensor]) -> None:
        for held, new in zip(self.held(slot), tensors, strict=True):
            held.copy_(new)

    def held(self, slot: str) -> list[torch.Tensor]:
        return self.server.slots[slot].tensors

    def ask(self, kind: int, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.doing = kind
        answer = self.server.commands[kind](request, ())
        # Every call of the sides here counts as a launch.
        return answer | {"launches": request.get("warmup", 0) + request.get("trials", 0)}

    def sharing(self) -> Any:
        return nullcontext()

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Reference:
    """The other side."""

    def __init__(self, run: Run, cases: list[Case]) -> None:
        self.side = Side(run, cases)

    def time(self, loaded: Loaded, cases: list[Case], warmup: int, trials: int, *_: Any) -> list[float]:
        request = calls_of(cases) | {"program": "candidate", "warmup": warmup, "trials": trials, "share": False}
        return list(self.side.ask(program.Kind.TIME, request, 1.0)["times_ms"])

    def repeat(self, loaded: Loaded, cases: list[Case], calls: int, *_: Any) -> None:
        self.side.ask(program.Kind.REPEAT, calls_of(cases) | {"program": "candidate", "calls": calls}, 1.0)


class Machine:
    limits = Limits()

    def now(self) -> Environment:
        return Environment(device="cuda")


def play_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What timing asks of CUDA, without any: events that are clocks, and nobody else on the card."""
    monkeypatch.setattr(torch.cuda, "Event", Clock)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda _: None)
    monkeypatch.setattr(program, "reset_persisting_l2", lambda: None)
    monkeypatch.setattr(program, "persisting_l2", lambda: 0)
    monkeypatch.setattr(measure, "is_quiet", lambda _: True)


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    play_a_gpu(monkeypatch)


def doubled(inputs: list[torch.Tensor]) -> torch.Tensor:
    return inputs[0] * 2


def doubled_in_place(inputs: list[torch.Tensor]) -> torch.Tensor:
    return inputs[0].mul_(2)


def case(in_place: bool) -> Case:
    x = torch.rand(3000)
    (tree, tensors), (out_tree, outputs) = flatten([x]), flatten(x * 2)
    after = [x * 2] if in_place else None
    made = Case(variants(1)[0], tree, tensors, out_tree, outputs, after, [], [Tolerance(1e-6, 1e-6)])
    made.plans = plans_of(made.inputs)
    return made


def measured(run: Callable[[Side], Run], cases: list[Case], reference: Run = doubled) -> Measured:
    child = Side(doubled, cases)
    child.server.programs["candidate"] = Code(run(child))  # type: ignore[assignment]  # as above
    loaded = Loaded("key", ADD_RELU, 0)
    settings = BenchSettings(device="cuda", timeout_s=5.0)
    measurement = Measurement(
        child, "candidate", Reference(reference, cases), loaded, cases, settings, Machine()  # type: ignore[arg-type]
    )  # fmt: skip
    measurement.begin()
    found = measurement.run()
    measurement.check(found)
    return found


def test_what_the_first_timed_call_costs_is_spent_before_and_is_no_time() -> None:
    cases = [case(False), case(False)]
    child, called = Side(doubled, cases), list[int]()

    def count(inputs: list[torch.Tensor]) -> torch.Tensor:
        called.append(child.doing)
        return doubled(inputs)

    child.server.programs["candidate"] = Code(count)  # type: ignore[assignment]  # as above
    measurement = Measurement(
        child, "candidate", Reference(doubled, cases), Loaded("key", ADD_RELU, 0), cases,  # type: ignore[arg-type]
        BenchSettings(device="cuda"), Machine(),  # type: ignore[arg-type]
    )  # fmt: skip
    measurement.begin()
    rotation = child.server.rotation
    assert rotation is not None
    assert called == [program.Kind.TIME]
    assert (measurement.kernel, measurement.calls) == ([], 0)
    assert measurement.run().status is Status.OK
    assert child.server.rotation is rotation, "what was made then is used"


@pytest.mark.parametrize("count", [1, 2])
def test_a_right_kernel_has_as_many_times_as_were_asked_for(count: int) -> None:
    found = measured(lambda _: doubled, [case(False) for _ in range(count)])
    assert (found.status, found.error) == (Status.OK, None)
    assert found.kernel is not None
    assert found.reference is not None
    assert found.kernel.n == found.reference.n
    assert found.kernel.n % 50 == 0


@pytest.mark.parametrize("count", [1, 2])
def test_what_works_in_place_finds_its_inputs_anew_in_each_call(count: int) -> None:
    found = measured(lambda _: doubled_in_place, [case(True) for _ in range(count)], doubled_in_place)
    assert (found.status, found.error) == (Status.OK, None)


@pytest.mark.parametrize("idle_in", [program.Kind.TIME, program.Kind.REPEAT])
@pytest.mark.parametrize("in_place", [False, True])
def test_one_that_idles_in_calls_of_one_kind_is_wrong(idle_in: int, in_place: bool) -> None:
    works = doubled_in_place if in_place else doubled

    def idle(child: Side) -> Run:
        return lambda inputs: inputs[0] if child.doing == idle_in else works(inputs)

    found = measured(idle, [case(in_place) for _ in range(2)], works)
    assert found.status is Status.MISMATCH
    assert found.error is not None
    assert "timed calls" in found.error.message


def test_one_answer_for_all_timed_calls_is_wrong() -> None:
    known: list[torch.Tensor] = []

    def again(_: Side) -> Run:
        def run(inputs: list[torch.Tensor]) -> torch.Tensor:
            known[:] = known or [doubled(inputs)]
            return known[0]

        return run

    assert measured(again, [case(False)]).status is Status.MISMATCH
