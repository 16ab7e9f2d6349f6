"""A whole measurement, inputs lent to both sides: what one side is told of them, the other is told too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kb_ray.bench.child import stopwatch
from kb_ray.bench.child.card import Card
from kb_ray.bench.child.cases import Case, Loaded
from kb_ray.bench.child.findings import Findings
from kb_ray.bench.child.references import timed_slots
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Status
from tests.fixtures_bench import ADD_RELU
from tests.unit.bench.test_measure import Code, Machine, Reference, Run, Side, case, doubled, play_a_gpu


class Lender(Reference):
    """All that is known of a task, and the process of its reference."""

    serial = 1

    def __init__(self) -> None:
        super().__init__(doubled, [])
        self.process = self
        self.ended: list[Case] = []

    def fresh(self, loaded: Loaded, settings: BenchSettings, near: Case | None = None) -> Case:
        return case(False)

    def lend_for_timing(self, loaded: Loaded, cases: list[Case], settings: BenchSettings) -> None:
        for slot, lent in zip(timed_slots(cases), cases, strict=True):
            self.side.put(slot, lent.inputs_tree, lent.inputs, 1.0, lent.plans)

    def holds(self, serial: int) -> bool:
        return serial == self.serial

    def end_timing(self, cases: list[Case], settings: BenchSettings) -> None:
        self.ended = cases


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    play_a_gpu(monkeypatch)
    monkeypatch.setattr(stopwatch, "is_quiet", lambda: True)


def timed(run: Run, large: bool) -> Status:
    child, lender, loaded = Side(run, []), Lender(), Loaded("key", ADD_RELU, 0)
    loaded.case_bytes = 2 << 30 if large else 1
    settings = BenchSettings(device="cuda", timeout_s=5.0)
    request = BenchRequest(request_id="t", task=ADD_RELU, kernel_code="pass", settings=settings)
    machine: Any = Machine()
    sides: tuple[Any, Any] = child, lender
    found = stopwatch.take_times(
        sides[0], "candidate", sides[1], loaded, settings, Card(machine, False), Findings(request, machine, True)
    )  # fmt: skip
    assert len(lender.ended) == (1 if large else 2), "and they are given back"
    assert isinstance(child.server.programs["candidate"], Code)
    return found.status


def first_answer(of: Callable[[torch.Tensor], Any]) -> Run:
    known: dict[Any, torch.Tensor] = {}

    def run(inputs: list[torch.Tensor]) -> torch.Tensor:
        return known.setdefault(of(inputs[0]), inputs[0] * 2)

    return run


@pytest.mark.parametrize("large", [False, True])
def test_a_right_kernel_is_right(large: bool) -> None:
    assert timed(doubled, large) is Status.OK


@pytest.mark.parametrize("large", [False, True])
def test_one_answer_for_all_calls_at_an_address_is_wrong(large: bool) -> None:
    assert timed(first_answer(lambda x: x.data_ptr()), large) is Status.MISMATCH


def test_the_candidate_hardly_ever_finds_what_it_was_given_before() -> None:
    seen, calls = set(), [0]

    def run(inputs: list[torch.Tensor]) -> torch.Tensor:
        seen.add(inputs[0].numpy().tobytes())
        calls[0] += 1
        return inputs[0] * 2

    assert timed(run, True) is Status.OK
    assert len(seen) > 0.7 * calls[0], "all but those that are looked at, and a few by chance"
