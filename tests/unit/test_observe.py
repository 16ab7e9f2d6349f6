"""Properties of what a person sees: every number asked for, one line where there is no terminal, in place
where there is one, and a summary from which the traces can be read."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pty
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kb_ray import observe
from kb_ray.compact import compact
from kb_ray.config import RunConfig
from kb_ray.drive import Ending
from kb_ray.preflight import Ready, preflight
from kb_ray.records import (
    Completion,
    Episode,
    Stage,
    Status,
    StopReason,
    Task,
    Turn,
    Usage,
    Verdict,
)
from kb_ray.tally import Tally
from tests.unit.traces.examples import put_part

TASK = Task(
    task_id="folder/t", source="folder", name="t", reference_code="", style="function", entry_point="reference_impl"
)


def episode(*statuses: Status, stop_reason: StopReason = StopReason.SUCCESS_UNTIMED) -> Episode:
    turns = tuple(
        Turn(
            index=index,
            prompt_hash="",
            completion=Completion(text="", finish_reason="stop", model="m", usage=Usage(completion_tokens=50)),
            triton_code="x",
            feedback_given=None,
            verdict=Verdict.of(status, Stage.FULL),
        )
        for index, status in enumerate(statuses)
    )
    return Episode(
        episode_id="e",
        run_id="r",
        task=TASK,
        sample=0,
        attempt=1,
        turns=turns,
        stop_reason=stop_reason,
        best_turn=None,
        messages=(),
        created_at="",
    )


def counted(*found: Episode, total: int = 10, earlier: int = 3) -> Tally:
    tally = Tally(total=total, earlier=earlier, started=time.monotonic() - 60)
    for one in found:
        for turn in one.turns:
            tally.completed(turn.completion)
            tally.turned(turn)
        tally.ended(one)
    return tally


def test_the_progress_line_has_every_number() -> None:
    tally = counted(episode(Status.MISMATCH, Status.OK), episode(Status.OK))
    tally.waiting_on_model, tally.waiting_on_bench = 4, 6
    line = observe.progress_line(tally, tally.started + 60)
    assert line == (
        "5/10 episodes | ok 2, mismatch 1 | 3.0 verdicts/min | 2 tokens/s | waiting: 4 on model, 6 on bench | "
        "ETA 2 min 30 s"
    )


def test_speeds_are_those_of_the_last_minute() -> None:
    tally = counted(episode(Status.OK))
    tally.rates(tally.started + 60)
    for _ in range(6):
        tally.turned(episode(Status.OK).turns[0])
    assert tally.rates(tally.started + 120).verdicts_per_min == pytest.approx(6)
    tally.rates(tally.started + 150)
    assert tally.rates(tally.started + 181).verdicts_per_min == pytest.approx(0)


async def test_without_a_terminal_there_are_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "LINE_EVERY_S", 0.02)
    stream = io.StringIO()
    async with observe.progress(counted(), stream):
        await asyncio.sleep(0.1)
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 3
    assert all(line.startswith("3/10 episodes | ") for line in lines)


def read_to_the_end(master: int) -> str:
    """All that a closed terminal was sent: one read gives 4 KiB at most, and the end is an error here."""
    shown = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(master, 4096):
            shown += chunk
    os.close(master)
    return shown.decode()


async def test_on_a_terminal_it_refreshes_in_place_and_ends_with_a_line() -> None:
    master, slave = pty.openpty()
    tally = counted(episode(Status.OK))
    with os.fdopen(slave, "w") as terminal:
        async with observe.progress(tally, terminal):
            await asyncio.sleep(observe._REFRESH_S * 1.5)
    shown = read_to_the_end(master)
    assert "on bench" in shown
    assert "\x1b[" in shown, "it moves the cursor"
    assert observe.progress_line(tally, time.monotonic()).partition(" | ")[0] in shown.splitlines()[-1]


@pytest.fixture
async def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ready:
    monkeypatch.chdir(tmp_path)
    config = RunConfig(tasks=("builtin:3",), model="scripted", device="cpu", dry_run=True, output="out")
    return await preflight(config, on_skip=pytest.fail)


async def test_the_summary_says_what_came_of_it_and_how_to_read_it(checked: Ready) -> None:
    tally = counted(
        episode(Status.MISMATCH, Status.OK), episode(Status.OK), episode(stop_reason=StopReason.INFRA_ERROR)
    )
    text = observe.summary_text(checked, tally, Ending("done"), written=3)
    assert "3 finished now, 3 written, 3 by earlier starts" in text
    assert "success_untimed 2, infra_error 1" in text
    assert "ok 2, mismatch 1" in text
    assert "turn 1: 1, turn 2: 1" in text
    assert checked.store.uri in text
    assert 'datasets.load_dataset("parquet"' in text
    assert "start the same command again to redo them" in text


async def test_the_summary_says_what_to_lower_where_the_window_was_full(checked: Ready) -> None:
    tally = counted(episode(stop_reason=StopReason.CONTEXT), episode(stop_reason=StopReason.CONTEXT))
    last = observe.summary_text(checked, tally, Ending("done"), written=2).splitlines()[-1]
    assert last.startswith("window:    2 episodes ")
    assert "lower --max-tokens" in last
    assert "window:" not in observe.summary_text(checked, counted(episode(Status.OK)), Ending("done"), written=1)


async def test_terse_is_no_advice_for_whom_it_was_too_long(checked: Ready) -> None:
    terse = replace(checked, config=checked.config.model_copy(update={"prompt": "terse"}))
    last = observe.summary_text(terse, counted(episode(stop_reason=StopReason.CONTEXT)), Ending("done"), 1)
    assert last.endswith("lower --max-tokens, into another --output")


async def test_turns_that_were_asked_for_by_their_number_alone_are_told(checked: Ready) -> None:
    assert "turns:    up to 1, target" in observe.plan_text(checked)
    given = checked.config.model_dump(exclude_unset=True) | {"max_turns": 3}
    text = observe.plan_text(replace(checked, config=RunConfig(**given)))
    assert "turns:    up to 1 (--max-turns counts with --multi-turn alone), target" in text
    text = observe.plan_text(replace(checked, config=RunConfig(**given, multi_turn=True)))
    assert "turns:    up to 3, target" in text


async def test_the_summary_names_the_files_that_hold_all_episodes(checked: Ready) -> None:
    put_part(checked.store, 0)
    assert "/parts/*.parquet" in observe.summary_text(checked, counted(), Ending("done"), 1)
    compact(checked.store, delete_parts=True)
    text = observe.summary_text(checked, counted(), Ending("done"), 1)
    assert "/final/*.parquet" in text
    assert "/parts/" not in text


async def test_the_summary_says_in_one_line_why_episodes_have_to_be_redone(checked: Ready) -> None:
    failed = episode(stop_reason=StopReason.INFRA_ERROR).model_copy(update={"error": "judge died\n" + "x" * 999})
    last = observe.summary_text(checked, counted(failed, episode(Status.OK)), Ending("done"), 2).splitlines()[-1]
    assert "1 failed episodes, the last with: judge died xxx" in last
    assert len(last) < 450


async def test_a_stop_says_how_to_go_on(checked: Ready) -> None:
    text = observe.summary_text(checked, counted(), Ending("budget", "--max-hours 2 reached"), written=0)
    assert "--max-hours 2 reached; start the same command again to go on" in text


@pytest.mark.parametrize(("earlier", "written", "something"), [(0, 0, False), (0, 1, True), (1, 0, True)])
async def test_how_to_read_is_said_where_there_is_something(
    checked: Ready, earlier: int, written: int, something: bool
) -> None:
    tally = Tally(total=4, earlier=earlier, started=0.0)
    text = observe.summary_text(checked, tally, Ending("budget", "spent"), written)
    assert ("load_dataset" in text) is something
