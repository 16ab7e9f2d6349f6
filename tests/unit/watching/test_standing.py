"""Properties of how a run is judged from outside: alive or not, how far, how fast, and what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kb_ray.records import StopReason
from kb_ray.traces.reading import Damaged
from kb_ray.traces.shards import Shard
from kb_ray.traces.skim import Skim, Skimmed
from kb_ray.traces.starts import Start
from kb_ray.watching.standing import Standing, ago, standing
from kb_ray.watching.standing_text import standing_text

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def before(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="seconds")


def start(
    *, began_s: float = 600, seen_s: float = 20, planned: int = 10, ending: str | None = None, **more: str
) -> Start:
    return Start(
        run_id="r", host="node-1", pid=42, began_at=before(began_s), seen_at=before(seen_s), every_s=60.0,
        planned=planned, earlier=0, generating=3, waiting_on_model=5, waiting_on_bench=2, ending=ending, **more,
    )  # fmt: skip


def row(number: int, *, reason: StopReason = StopReason.SUCCESS_UNTIMED, attempt: int = 1, speedup: float | None = None,
        trusted: bool = True, statuses: tuple[str, ...] = ("mismatch", "ok")) -> Skimmed:  # fmt: skip
    correct = reason in (StopReason.SUCCESS_FAST, StopReason.SUCCESS_UNTIMED)
    level = number % 2
    return Skimmed(f"t{number}", 0, attempt, "folder", level, reason, correct, trusted, speedup, statuses)


def part(ago_s: float) -> str:
    return f"parts/part-{NOW - timedelta(seconds=ago_s):%Y%m%dT%H%M%S%fZ}-0123456789abcdef.parquet"


def stands(*starts: Start, damaged: tuple[Damaged, ...] = (), **files: tuple[Skimmed, ...]) -> Standing:
    """The standing of parts named by their age in seconds: `s30` is 30 s old."""
    held = {part(float(name.removeprefix("s"))): rows for name, rows in files.items()}
    return standing("/out", None, starts, Skim(dict(sorted(held.items())), damaged), NOW, "the command")


@pytest.mark.parametrize(
    ("starts", "rows", "state"),
    [
        ((start(),), 4, "running"),
        ((start(seen_s=190),), 4, "running"),
        ((start(seen_s=200),), 4, "silent"),
        ((start(seen_s=200),), 10, "finished"),
        ((start(seen_s=9000, ending="done"),), 10, "finished"),
        ((start(seen_s=9000, ending="done"),), 9, "stopped"),
        ((start(ending="budget", message="--max-hours 1 reached"),), 4, "stopped"),
        ((start(ending="failed", message="store gone"),), 4, "stopped"),
        ((start(ending="signal", message="SIGTERM received"), start(began_s=60)), 4, "running"),
        ((start(), start(began_s=60, ending="signal")), 4, "stopped"),
        ((start(seen_s=5000), start(began_s=60, seen_s=30, ending="budget")), 4, "stopped"),
        ((), 4, "unknown"),
    ],
)  # fmt: skip
def test_the_state_follows_from_the_last_words_and_from_what_is_there(
    starts: tuple[Start, ...], rows: int, state: str
) -> None:
    found = stands(*starts, s30=tuple(row(i) for i in range(rows)))
    assert found.state == state
    assert (found.resume is None) == (state in ("running", "finished"))
    text = standing_text(found)
    assert state in text
    assert ("the command" in text) == (found.resume is not None)


def test_what_a_stop_was_about_is_told() -> None:
    assert "--max-hours 1 reached" in stands(start(ending="budget", message="--max-hours 1 reached"), s9=(row(0),)).why
    assert "node-1, process 42" in stands(start(seen_s=999), s9=(row(0),)).why


def test_failed_episodes_keep_a_run_from_being_finished_and_out_of_the_success() -> None:
    rows = (*(row(i) for i in range(8)), row(8, reason=StopReason.INFRA_ERROR), row(9, reason=StopReason.MAX_TURNS))
    found = stands(start(ending="done"), s30=rows)
    assert (found.state, found.episodes, found.to_redo) == ("stopped", 10, 1)
    assert (found.success.count, found.success.n) == (8, 9)
    assert found.success.low is not None
    assert found.success.low < 8 / 9 < (found.success.high or 0)
    assert {name: share.n for name, share in found.success_by_source.items()} == {
        "folder level 0": 4,
        "folder level 1": 5,
    }


def test_a_redone_episode_counts_once_in_its_highest_attempt() -> None:
    found = stands(start(planned=1), s60=(row(0, reason=StopReason.MODEL_ERROR),), s30=(row(0, attempt=2),))
    assert (found.episodes, found.superseded, found.to_redo) == (1, 1, 0)
    assert found.stop_reasons == {"success_untimed": 1}


def test_the_rate_is_that_of_the_last_parts_of_the_newest_start() -> None:
    rows = [(row(2 * i), row(2 * i + 1)) for i in range(8)]
    old = {f"s{7200 + 10 * i}": rows[i] for i in range(2)}
    found = stands(start(began_s=239, planned=20), **old, s180=rows[2], s120=rows[3], s60=rows[4])
    assert found.episodes_per_min == pytest.approx(2.0)
    assert found.left_s == pytest.approx(60 * 10 / 2)
    assert found.since_last_part_s == pytest.approx(60)
    assert stands(start(), s700=(row(0),)).episodes_per_min is None, "nothing since it began"


def test_only_trusted_speedups_count_and_none_where_nothing_is_timed() -> None:
    assert stands(start(), s30=(row(0), row(1))).faster is None
    rows = (row(0, speedup=2.0), row(1, speedup=3.0, trusted=False), row(2, speedup=0.5))
    faster = stands(start(), s30=rows).faster
    assert faster is not None
    assert (faster.count, faster.n) == (1, 3)


def test_a_damaged_file_is_named_and_the_rest_is_shown() -> None:
    found = stands(start(ending="done", planned=1), s30=(row(0),), damaged=(Damaged("parts/x.parquet", "cut short"),))
    assert found.episodes == 1
    assert found.state == "stopped", "nobody knows what was in the damaged one"
    assert "damaged:   parts/x.parquet: cut short" in standing_text(found)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119, "119 s"), (120, "2 minutes"), (7300, "2 hours"), (200_000, "2 days")]
)
def test_durations_are_told_coarsely(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def shard_start(shard: str, planned: int, *, seen_s: float = 20, ending: str | None = None, all_: int = 8) -> Start:
    return start(planned=planned, seen_s=seen_s, ending=ending).model_copy(
        update={"shard": shard, "run_planned": all_, "host": f"node-{shard[0]}"}
    )


def test_shards_are_told_apart_and_what_one_of_them_needs_is_named() -> None:
    own = {name: [i for i in range(40) if Shard.of(name).holds(f"t{i}", 0)] for name in ("1/2", "2/2")}
    first, second = len(own["1/2"][:4]), len(own["2/2"][:4])
    rows = tuple(row(i) for i in [*own["1/2"][:4], *own["2/2"][:1]])
    found = stands(shard_start("1/2", first, ending="done"), shard_start("2/2", second, seen_s=900), s30=rows)
    assert (found.planned, found.episodes, found.state) == (8, 5, "silent")
    assert [(one.shard, one.state, one.episodes) for one in found.shards] == [
        ("1/2", "finished", 4),
        ("2/2", "silent", 1),
    ]
    assert [one.resume for one in found.shards] == [None, "the command --shard 2/2"]
    text = standing_text(found)
    assert "shard 2/2: silent, 1 of 4 episodes, on node-2" in text
    assert text.endswith("go on with\n  the command --shard 2/2")


def test_a_killed_shard_is_silent_as_a_killed_run_is() -> None:
    found = stands(shard_start("1/2", 4), shard_start("2/2", 4, ending="gone"), s30=())
    assert [one.state for one in found.shards] == ["running", "silent"]
    assert found.shards[1].resume == "the command --shard 2/2"
    assert stands(start(ending="gone"), s30=()).state == "silent"


def test_a_shard_that_nobody_started_is_missing_from_a_run_that_goes_on() -> None:
    found = stands(shard_start("1/3", 3), s30=())
    assert (found.state, found.planned) == ("running", 8)
    assert [one.state for one in found.shards] == ["running", "not started", "not started"]
    assert "--shard 3/3" in standing_text(found)


def test_all_shards_done_is_a_finished_run() -> None:
    rows = tuple(row(i) for i in range(8))
    counts = [sum(Shard.of(name).holds(f"t{i}", 0) for i in range(8)) for name in ("1/2", "2/2")]
    found = stands(shard_start("1/2", counts[0], ending="done"), shard_start("2/2", counts[1], ending="done"), s30=rows)
    assert found.state == "finished"
    assert {one.state for one in found.shards} == {"finished"}
