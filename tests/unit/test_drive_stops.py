"""Properties of how a run stops and goes on: signals, budgets, failures of model, verifier and store."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kb_ray import drive as driver
from kb_ray.bench.protocol import BenchRequest
from kb_ray.drive import Ending
from kb_ray.errors import ContextError, InfraError, StoreError
from kb_ray.model.completer import Request
from kb_ray.records import Completion, Environment, Episode, Stage, Status, StopReason, Turn, Verdict
from kb_ray.tally import Tally
from tests.unit.drive_stand_ins import BAD, GOOD, Bench, StandInPool, WatchedModel, assert_exactly_once, script


async def test_a_signal_drops_what_is_under_way_at_once_and_the_next_start_runs_it(tmp_path: Path) -> None:
    async def hang(request: BenchRequest) -> None:
        if request.task.name not in ("t0", "t1", "t2"):
            await asyncio.sleep(3600)

    model = WatchedModel(script(tmp_path, GOOD))
    bench = Bench(tmp_path, model, StandInPool(places=8, before=hang))
    running = asyncio.create_task(bench.run(8))
    while bench.tally.finished < 3:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    bench.drive.stop(Ending("signal", "SIGTERM", 143, hurried=True))
    ending = await running
    assert time.monotonic() - began < 20
    assert ending.exit_code == 143
    assert_exactly_once(bench.rows(), 3)
    again = Bench(tmp_path, model, StandInPool())
    await again.run(8)
    assert_exactly_once(again.rows(), 8)


LEASE = Ending("failing", "another start writes here now", 1)
GONE = Ending("failing", "the Ray cluster is gone", 1, hurried=True)
SIGTERM = Ending("signal", "SIGTERM received", 143, hurried=True)
BUDGET = Ending("budget", "--max-hours 1 reached")


@pytest.mark.parametrize(
    ("first", "then", "kept", "told"),
    [
        (LEASE, GONE, replace(LEASE, hurried=True), "the Ray cluster is gone\n"),
        (LEASE, LEASE, LEASE, ""),
        (BUDGET, LEASE, BUDGET, "another start writes here now\n"),
        (BUDGET, GONE, replace(BUDGET, hurried=True), "the Ray cluster is gone\n"),
        (BUDGET, BUDGET, BUDGET, ""),
        (LEASE, BUDGET, LEASE, ""),
        (LEASE, SIGTERM, SIGTERM, ""),
        (GONE, SIGTERM, SIGTERM, ""),
        (SIGTERM, GONE, SIGTERM, ""),
        (GONE, LEASE, GONE, ""),
    ],
)
async def test_the_first_reason_stays_but_for_a_signals_and_hurry_is_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: Ending, then: Ending, kept: Ending, told: str
) -> None:
    bench = Bench(tmp_path, WatchedModel(script(tmp_path, GOOD)), StandInPool())
    bench.drive.stop(first)
    bench.drive.stop(then)
    assert await bench.run(3) == kept
    assert capsys.readouterr().err == told, "what takes no reason's place is told all the same"


@pytest.mark.parametrize(("then", "kept"), [(GONE, replace(BUDGET, hurried=True)), (LEASE, BUDGET), (SIGTERM, SIGTERM)])
async def test_what_is_no_budget_cuts_a_budgets_grace(tmp_path: Path, then: Ending, kept: Ending) -> None:
    hanging = asyncio.Event()

    async def hang(request: BenchRequest) -> None:
        hanging.set()
        await asyncio.sleep(3600)

    bench = Bench(tmp_path, WatchedModel(script(tmp_path, GOOD)), StandInPool(before=hang))
    running = asyncio.create_task(bench.run(3))
    await hanging.wait()
    bench.drive.stop(BUDGET)
    await asyncio.sleep(0.1)
    bench.drive.stop(then)
    assert await asyncio.wait_for(running, driver._GRACE_S / 2) == kept


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        ({"max_tokens_total": 40}, lambda tally: tally.tokens >= 40),
        ({"max_hours": 0.1 / 3600}, lambda tally: time.monotonic() - tally.started >= 0.1),
    ],
)
async def test_a_budget_stops_cleanly_and_the_run_can_go_on(
    tmp_path: Path, budget: dict[str, Any], spent: Callable[[Tally], bool], capsys: pytest.CaptureFixture[str]
) -> None:
    model = WatchedModel(script(tmp_path, BAD, GOOD), delay_s=0.02)
    bench = Bench(tmp_path, model, StandInPool(), batch_size=2, multi_turn=True, **budget)
    ending = await bench.run(16)
    assert (ending.kind, ending.exit_code) == ("budget", 0)
    assert spent(bench.tally)
    assert capsys.readouterr().err.count("reached: waiting up to 120 s for what is under way\n") == 1
    assert len(bench.rows()) < 16
    assert all(len(row.turns) == 2 for row in bench.rows()), "no episode is cut short"
    again = Bench(tmp_path, model, StandInPool(), multi_turn=True)
    assert (await again.run(16)).kind == "done"
    assert_exactly_once(again.rows(), 16)


async def test_gpu_hours_count_the_work_and_not_the_queue(tmp_path: Path) -> None:
    tally = Tally(total=1, earlier=0, started=0.0)
    for device in ("cuda", "cpu"):
        found = Verdict.of(
            Status.OK, Stage.FULL, seconds={"queue": 100.0, "total": 103.0}, env=Environment(device=device)
        )
        completion = Completion(text="", finish_reason="stop", model="m")
        turn = Turn(index=0, prompt_hash="", completion=completion, triton_code="x", feedback_given=None, verdict=found)
        tally.turned(turn)
    assert tally.gpu_s == 3.0


async def test_an_infrastructure_failure_is_kept_as_such_and_redone_as_the_next_attempt(tmp_path: Path) -> None:
    async def fail(request: BenchRequest) -> None:
        if request.task.name == "t1":
            raise InfraError("judge died")

    model = WatchedModel(script(tmp_path, GOOD))
    bench = Bench(tmp_path, model, StandInPool(before=fail))
    await bench.run(3)
    failed = next(row for row in bench.rows() if row.task.name == "t1")
    assert (failed.stop_reason, failed.turns, failed.error) == (StopReason.INFRA_ERROR, (), "judge died")
    assert bench.tally.to_redo == 1
    again = Bench(tmp_path, model, StandInPool())
    await again.run(3)
    assert {row.task.name: row.attempt for row in again.rows()} == {"t0": 1, "t1": 2, "t2": 1}
    assert {row.stop_reason for row in again.rows()} == {StopReason.SUCCESS_UNTIMED}


async def test_a_model_failure_ends_its_episode_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WatchedModel(script(tmp_path, GOOD, tasks="folder/t[02]")), StandInPool())
    assert (await bench.run(3)).kind == "done"
    assert Counter(row.stop_reason for row in bench.rows()) == {
        StopReason.SUCCESS_UNTIMED: 2,
        StopReason.MODEL_ERROR: 1,
    }


class _Small(WatchedModel):
    """Holds no question, or not the one of the first task."""

    def __init__(self, path: Path, first_alone: bool) -> None:
        super().__init__(path)
        self.first_alone = first_alone

    async def complete(self, request: Request) -> Completion:
        if request.task_id == "folder/t0" or not self.first_alone:
            raise ContextError("the prompt is too long")
        return await super().complete(request)


@pytest.mark.parametrize(("first_alone", "exit_code"), [(False, 1), (True, 0)])
async def test_a_run_without_room_for_any_question_is_no_success(
    tmp_path: Path, first_alone: bool, exit_code: int
) -> None:
    ending = await Bench(tmp_path, _Small(script(tmp_path, GOOD), first_alone), StandInPool()).run(3)
    assert (ending.kind, ending.exit_code) == ("done", exit_code)


async def test_a_run_of_failures_only_is_no_success(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WatchedModel(script(tmp_path, GOOD, tasks="folder/other")), StandInPool())
    ending = await bench.run(3)
    assert (ending.kind, ending.exit_code) == ("failing", 1)
    assert "folder/t" in ending.message, "it says what failed"


async def test_retry_failed_tries_the_unsolved_once_more_after_all_others(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    lines = [{"task": "folder/t[12]", "turns": [BAD]}, {"task": "folder/*", "turns": [GOOD]}]
    path.write_text("\n".join(map(json.dumps, lines)))
    model = WatchedModel(path)
    bench = Bench(tmp_path, model, StandInPool(), retry_failed=True)
    await bench.run(5)
    assert [(request.task_id, request.attempt) for request in model.requests][5:] == [
        ("folder/t1", 2),
        ("folder/t2", 2),
    ]
    seeds = {request.sampling.seed for request in model.requests}
    assert len(seeds) == len(model.requests), "a second attempt asks with another seed"
    assert {row.task.name: row.attempt for row in bench.rows()} == {"t0": 1, "t1": 2, "t2": 2, "t3": 1, "t4": 1}
    again = Bench(tmp_path, model, StandInPool(), retry_failed=True)
    await again.run(5)
    assert len(model.requests) == 7, "twice is enough"


async def test_retry_failed_given_later_takes_up_what_an_earlier_start_left(tmp_path: Path) -> None:
    model = WatchedModel(script(tmp_path, BAD))
    await Bench(tmp_path, model, StandInPool()).run(2)
    again = Bench(tmp_path, model, StandInPool(), retry_failed=True)
    await again.run(2)
    assert [row.attempt for row in again.rows()] == [2, 2]


async def test_a_store_that_gave_up_stops_the_run(tmp_path: Path) -> None:
    class FullSink:
        def add(self, episode: Episode) -> None:
            raise StoreError("trace store /x: disk full")

        def close(self, timeout: float) -> None:
            pass

    model = WatchedModel(script(tmp_path, GOOD))
    with pytest.raises(StoreError, match="disk full"):
        await Bench(tmp_path, model, StandInPool(), sink=FullSink(), batch_size=2).run(500)
    assert len(model.requests) < 20


async def test_a_mistake_of_ours_is_not_swallowed(tmp_path: Path) -> None:
    async def break_(request: BenchRequest) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Bench(tmp_path, WatchedModel(script(tmp_path, GOOD)), StandInPool(before=break_)).run(5)


async def test_a_run_in_which_everything_fails_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(request: BenchRequest) -> None:
        raise InfraError("no worker")

    monkeypatch.setattr(driver, "_FAILING_S", 0.0)
    bench = Bench(tmp_path, WatchedModel(script(tmp_path, GOOD)), StandInPool(before=fail))
    ending = await bench.run(500)
    assert (ending.kind, ending.exit_code) == ("failing", 1)
    assert "no worker" in ending.message
    assert bench.tally.finished < 60


async def test_a_run_whose_last_worker_is_lost_stops_and_says_so_once_in_no_hurry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, all_there = StandInPool(places=40), asyncio.Barrier(40)

    async def fail(request: BenchRequest) -> None:
        await all_there.wait()
        pool.lost = "GPU 0 is quarantined: its canary kernel fails"
        raise InfraError("no worker")

    pool.before = fail
    bench = Bench(tmp_path, WatchedModel(script(tmp_path, GOOD)), pool)
    ending = await bench.run(500)
    assert ending == Ending("failing", pool.lost or "", 1), "what is finished has its time to be kept"
    assert capsys.readouterr().err == ""
    assert bench.tally.finished < 60
