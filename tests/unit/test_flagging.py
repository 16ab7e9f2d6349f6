"""Flagged tasks are left out before their first episode, each is looked at once, and the rest is not held up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError
from kb_ray.flagging import Flagging
from kb_ray.records import Evidence, Stage, Status, Task, Verdict
from tests.unit.drive_stand_ins import GOOD, Bench, StandInPool, WatchedModel, script, task


def program(number: int, code: str = "x") -> Task:
    return task(number).model_copy(update={"reference_code": f"def reference_impl(x):\n    return {code}\n"})


class Gate:
    """Answers what is held against a task by the text of its program; counts questions."""

    def __init__(self, **flags: str) -> None:
        self.flags, self.asked = flags, list[BenchRequest]()

    async def evaluate(self, request: BenchRequest) -> Verdict:
        self.asked.append(request)
        await asyncio.sleep(0)
        code = request.task.reference_code
        if "broken" in code:
            raise InfraError("the reference raised")
        held = tuple(flag for word, flag in self.flags.items() if word in code)
        return Verdict.of(Status.OK, Stage.FULL, evidence=Evidence(flags=held))


def looking(pool: Gate) -> tuple[Flagging, list[str]]:
    told: list[str] = []
    return Flagging(pool, BenchSettings(timeout_s=7), told.append), told


async def test_a_task_is_asked_about_without_a_candidate_under_the_settings_of_the_run() -> None:
    pool = Gate()
    flagging, _ = looking(pool)
    assert await flagging.admits(program(1))
    assert [(r.inspect, r.kernel_code, r.settings.timeout_s) for r in pool.asked] == [(True, "", 7)]


async def test_an_excluding_flag_leaves_a_task_out_and_says_why_once() -> None:
    flagging, told = looking(Gate(zeros="zeros_pass"))
    assert not await flagging.admits(program(1, "zeros"))
    assert not await flagging.admits(program(1, "zeros"))
    assert told == ["folder/t1: left out, it is flagged zeros_pass"]
    assert len(flagging.left_out) == 1


async def test_a_flag_that_does_not_exclude_leaves_a_task_in() -> None:
    flagging, told = looking(Gate(x="too_large"))
    assert await flagging.admits(program(1))
    assert told == []


async def test_what_a_task_is_decides_and_not_its_name() -> None:
    pool = Gate(zeros="zeros_pass")
    flagging, told = looking(pool)
    answers = await asyncio.gather(*(flagging.admits(program(number, "zeros")) for number in range(5)))
    assert answers == [False] * 5
    assert len(pool.asked) == 1
    assert len(told) == 5
    assert await flagging.admits(program(0, "x"))
    assert len(pool.asked) == 2


async def test_a_flag_that_the_source_gave_needs_no_question() -> None:
    pool = Gate()
    flagging, told = looking(pool)
    assert not await flagging.admits(program(1).model_copy(update={"flags": ("ignores_input",)}))
    assert pool.asked == []
    assert "ignores_input" in told[0]


async def test_a_reference_that_fails_is_left_to_its_episodes() -> None:
    flagging, told = looking(Gate())
    assert await flagging.admits(program(1, "broken"))
    assert told == []


async def test_whoever_gives_up_waiting_does_not_take_the_answer_from_others() -> None:
    class Slow(Gate):
        async def evaluate(self, request: BenchRequest) -> Verdict:
            await asyncio.sleep(0.05)
            return await super().evaluate(request)

    pool = Slow(zeros="zeros_pass")
    flagging, _ = looking(pool)
    first = asyncio.create_task(flagging.admits(program(1, "zeros")))
    second = asyncio.create_task(flagging.admits(program(1, "zeros")))
    await asyncio.sleep(0.01)
    first.cancel()
    assert not await second
    assert len(pool.asked) == 1
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.parametrize("dropped", [{0, 3}, set(range(6))])
async def test_a_run_asks_no_model_about_a_task_that_is_left_out(tmp_path: Path, dropped: set[int]) -> None:
    async def admits(asked: Task) -> bool:
        await asyncio.sleep(0)
        return asked.task_id not in {task(number).task_id for number in dropped}

    model = WatchedModel(script(tmp_path, GOOD))
    bench = Bench(tmp_path, model, StandInPool())
    bench.drive._admits = admits
    ending: Any = await bench.run(6)
    kept = sorted(task(number).task_id for number in set(range(6)) - dropped)
    assert ending.kind == "done"
    assert sorted(row.task.task_id for row in bench.rows()) == kept
    assert sorted(request.task_id for request in model.requests) == kept
    assert bench.tally.total == bench.tally.done == len(kept)
