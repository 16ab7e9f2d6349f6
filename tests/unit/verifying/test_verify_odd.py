"""Content that nobody foresaw: the check of a store names it, goes on, and never ends in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kb_ray.compact import compact
from kb_ray.records import Episode, StopReason
from kb_ray.traces.columns import VERSION_KEY
from kb_ray.traces.layout import MANIFEST_KEY, RUN_KEY, list_parts
from kb_ray.traces.part_index import write_index
from kb_ray.traces.plans import PLANS_PREFIX
from kb_ray.traces.run import request_seed
from kb_ray.traces.shards import Shard
from kb_ray.traces.starts import STARTS_PREFIX
from kb_ray.traces.store import Store
from kb_ray.traces.views import episodes
from kb_ray.training.rl_command import _info
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.verifying.checking import check
from tests.unit.verifying.sound_stores import (
    RUN,
    add,
    change_episode,
    change_row,
    first_table,
    keep_only,
    renamed,
    sound_store,
    write_raw,
)

DEEP = "[" * 100_000


def kinds(store: Store) -> list[str]:
    return [str(fault.kind) for fault in check(store).faults]


def test_a_best_turn_that_is_none_is_told_once(store: Store) -> None:
    change_row(store, lambda row: row | {"best_turn": 5})
    assert [fault.what for fault in check(store).faults] == ["best_turn is 5, of 3 turns"]


def test_a_verdict_that_contradicts_itself_is_a_fault_of_its_row(store: Store) -> None:
    def change(episode: Episode) -> Episode:
        wrong = [turn.verdict.model_copy(update={"correct": False}) for turn in episode.turns]
        turns = (turn.model_copy(update={"verdict": v}) for turn, v in zip(episode.turns, wrong, strict=True))
        return episode.model_copy(update={"turns": tuple(turns)})

    change_episode(store, change)
    assert kinds(store)


def test_columns_that_nest_without_end_are_no_episode(store: Store) -> None:
    change_row(store, lambda row: row | {"input_shapes": DEEP})
    assert "row" in kinds(store)


@pytest.mark.parametrize("content", [DEEP, '{"tasks": {"a": [1e999]}}', '{"tasks": {"a": [0]}}', "[]"])
def test_a_plan_that_is_none_or_not_the_one_of_its_name_is_a_fault(store: Store, content: str) -> None:
    store.replace(f"{PLANS_PREFIX}plan-{'0' * 16}.json", content.encode())
    assert kinds(store) == ["plan"]


def change_start(store: Store, **changes: Any) -> str:
    key = store.list(STARTS_PREFIX)[0]
    store.replace(key, json.dumps(json.loads(store.get(key) or b"") | changes).encode())
    return key


@pytest.mark.parametrize("ending", ["signal", "budget"])
async def test_what_a_stopped_start_had_finished_and_is_not_there_is_lost(tmp_path: Path, ending: str) -> None:
    store = await sound_store(tmp_path, 4, planned=6, ending=ending)
    change_start(store, finished=4)
    assert check(store).faults == ()
    store.delete(list_parts(store)[0])
    [fault] = check(store).faults
    assert fault.kind == "lost"
    assert "4 episodes were finished when the start of" in fault.what
    assert f"ended ({ending}), {check(store).episodes} are here" in fault.what


@pytest.mark.parametrize("shard", ["x", "9/4", "0/0"])
def test_a_start_of_no_shard_is_a_fault_of_its_file(store: Store, shard: str) -> None:
    key = change_start(store, shard=shard)
    assert [(fault.kind, fault.part) for fault in check(store).faults] == [("start", key)]


@pytest.mark.parametrize("content", ["{", "", "[]", DEEP])
def test_a_start_that_cannot_be_read_is_a_fault_of_its_file(store: Store, content: str) -> None:
    key = store.list(STARTS_PREFIX)[0]
    store.replace(key, content.encode())
    assert [(fault.kind, fault.part) for fault in check(store).faults] == [("start", key)]


def test_a_word_that_a_later_version_adds_to_a_start_is_no_fault(store: Store) -> None:
    change_start(store, weather="fine")
    assert kinds(store) == []


def test_a_manifest_that_nests_without_end_is_one_fault(store: Store) -> None:
    store.replace(MANIFEST_KEY, DEEP.encode())
    assert kinds(store) == ["manifest"]


@pytest.mark.parametrize(
    "change", [{"n-correctness": "abc"}, {"turns": 0}, {"model": "another"}, {"target-speedup": 7.0}]
)
def test_settings_that_are_not_those_of_the_fingerprint_are_a_fault(store: Store, change: dict[str, Any]) -> None:
    run = json.loads(store.get(RUN_KEY) or b"")
    store.replace(RUN_KEY, json.dumps(run | {"identity": run["identity"] | change}).encode())
    assert "identity" in kinds(store)


async def test_episodes_that_went_with_their_plan_are_lost(tmp_path: Path) -> None:
    store = await sound_store(tmp_path, 6)
    for key in (*store.list(PLANS_PREFIX), list_parts(store)[0]):
        store.delete(key)
    [fault] = check(store).faults
    assert (fault.kind, "6 episodes were done" in fault.what) == ("lost", True)


@pytest.mark.parametrize("shard", ["1/2", "2/2"])
def test_of_a_shard_whose_plan_is_gone_the_number_of_its_own_episodes_is_compared(store: Store, shard: str) -> None:
    own = [one for one in episodes(store) if Shard.of(shard).holds(one.task.task_id, one.sample)]
    assert 0 < len(own) < 6
    change_start(store, shard=shard, planned=len(own))
    store.delete(store.list(PLANS_PREFIX)[0])
    assert kinds(store) == []
    keep_only(store, lambda one: one.episode_id != own[0].episode_id)
    [fault] = check(store).faults
    assert (fault.kind, f"shard {shard}: {len(own)} episodes were done, {len(own) - 1} are here" in fault.what) == (
        "lost",
        True,
    )


def test_a_later_attempt_after_a_solved_one_is_needless_whatever_its_number(store: Store) -> None:
    add(store, lambda episode: renamed(episode, attempt=5))
    lost, needless = check(store).faults
    assert (lost.kind, lost.what) == ("lost", "3 of the attempts before it are not here")
    assert (needless.kind, "attempt 1 was solved already" in needless.what) == ("attempt", True)


@pytest.mark.parametrize("moment", ["yesterday", "", "2026-01-02T03:04:05", "2026-01-02T03:04:05+02:00"])
def test_an_end_at_no_time_in_utc_is_a_fault(store: Store, moment: str) -> None:
    change_episode(store, lambda one: one.model_copy(update={"created_at": moment}))
    assert kinds(store) == ["row"]


def test_an_error_of_an_episode_that_ended_by_its_verdicts_is_a_fault(store: Store) -> None:
    change_episode(store, lambda one: one.model_copy(update={"error": "the server left"}))
    assert kinds(store) == ["stop"]


def test_a_sample_below_nought_is_a_fault(store: Store) -> None:
    add(store, lambda one: renamed(one, sample=-3))
    [fault] = check(store).faults
    assert (fault.kind, "sample is -3" in fault.what) == ("row", True)


@pytest.mark.parametrize("version", [None, "0", "1", "2"])
@pytest.mark.parametrize("more", [False, True])
def test_a_file_says_its_version_and_has_no_column_that_none_has(store: Store, version: str | None, more: bool) -> None:
    table = first_table(store)
    store.delete(list_parts(store)[0])
    if more:
        table = table.append_column("zzz", pa.array([1] * table.num_rows))
    key = write_raw(store, table.replace_schema_metadata({VERSION_KEY: version} if version else None))
    told = [(fault.kind, fault.part) for fault in check(store).faults]
    assert told == [("schema", key)] * ((version in (None, "0")) + more)


@pytest.mark.parametrize("version", [99, 0, -1])
def test_a_run_of_a_schema_that_is_not_known_is_a_fault(store: Store, version: int) -> None:
    store.replace(RUN_KEY, RUN.model_copy(update={"schema_version": version}).model_dump_json().encode())
    assert kinds(store) == ["identity"]


def test_the_name_of_a_command_excuses_no_fingerprint(store: Store) -> None:
    identity = RUN.identity | {"command": "grpo"}
    store.replace(RUN_KEY, RUN.model_copy(update={"identity": identity}).model_dump_json().encode())
    assert "its settings are not those of its fingerprint" in [fault.what for fault in check(store).faults]


@pytest.mark.parametrize("settings", [GrpoSettings(learning_rate=3e-7), BestOfNSettings()])
def test_a_training_run_has_the_fingerprint_of_its_settings(
    store: Store, settings: GrpoSettings | BestOfNSettings
) -> None:
    run = _info(settings, "grpo", "run", "cpu")
    store.replace(RUN_KEY, run.model_dump_json().encode())
    assert not [fault for fault in check(store).faults if fault.part == RUN_KEY]
    wrong = run.model_copy(update={"identity": run.identity | {"temperature": 0.123}})
    store.replace(RUN_KEY, wrong.model_dump_json().encode())
    assert [fault.kind for fault in check(store).faults if fault.part == RUN_KEY] == ["identity"]


def test_an_index_of_a_part_that_is_gone_with_its_episodes_is_a_fault(store: Store) -> None:
    key, table = list_parts(store)[0], first_table(store)
    write_index(store, [(key, table)])
    change_start(store, ending=None)
    assert kinds(store) == []
    store.delete(key)
    [fault] = check(store).faults
    assert (fault.kind, fault.part) == ("index", key)
    assert fault.episode == "folder/t0 sample 0 attempt 1"
    assert f"no file has {table.num_rows} of its episodes" in fault.what


def test_an_index_of_parts_that_compactions_took_away_is_no_fault(store: Store) -> None:
    write_index(store, [(list_parts(store)[0], first_table(store))])
    compact(store, delete_parts=True)
    add(store, lambda one: renamed(one, sample=1))
    compact(store, delete_parts=True)
    assert kinds(store) == []


def test_an_index_with_other_ids_of_episodes_is_a_fault(store: Store) -> None:
    key, table = list_parts(store)[0], first_table(store)
    ids = pa.array(["0" * 32] * table.num_rows)
    write_index(store, [(key, table.set_column(table.schema.get_field_index("episode_id"), "episode_id", ids))])
    assert [(fault.kind, fault.part) for fault in check(store).faults] == [("index", key)]


def test_a_reference_program_that_the_model_was_not_shown_is_a_fault(store: Store) -> None:
    def other(one: Episode) -> Episode:
        task = one.task.model_copy(update={"reference_code": "def reference_impl(x):\n    return 2 * x\n"})
        return one.model_copy(update={"task": task})

    change_episode(store, other)
    assert kinds(store) == ["verdict", "verdict", "task"], "its verdicts are not on it either"


@pytest.mark.parametrize("change", [{}, {"temperature": 0.123}, {"top_p": 0.123}, {"max_tokens": 77}, {"seed": 5}])
def test_answers_are_drawn_as_the_run_says(store: Store, change: dict[str, Any]) -> None:
    asked = next(episodes(store)).turns[1].completion.sampling
    names = {"temperature": asked.temperature, "top-p": asked.top_p, "max-tokens": asked.max_tokens, "seed": 0}
    run = RUN.model_copy(update={"identity": RUN.identity | names})
    store.replace(RUN_KEY, run.model_dump_json().encode())
    key = change_episode(store, answered(sampling=asked.model_copy(update=change)))
    right = request_seed(0, "folder/t0", 0, 1, 1)
    of_seed, of_others = f"asked with seed 5, by the run's it is {right}", "not asked with the sampling of the run"
    wrong = [f"turn 1 was {of_seed if name == 'seed' else of_others}" for name in change]
    assert [fault.what for fault in check(store).faults if fault.part == key] == wrong


def test_an_answer_of_another_model_than_the_runs_is_a_fault(store: Store) -> None:
    key = change_episode(store, answered(model="other"))
    [fault] = check(store).faults
    assert (fault.kind, fault.part, fault.what) == (
        "identity", key, "turn 1 is an answer of other, the run's are of scripted",
    )  # fmt: skip


def answered(**changes: Any) -> Callable[[Episode], Episode]:
    """The second answer changed."""

    def changed(one: Episode) -> Episode:
        first, second, *rest = one.turns
        completion = second.completion.model_copy(update=changes)
        return one.model_copy(update={"turns": (first, second.model_copy(update={"completion": completion}), *rest)})

    return changed


def test_an_attempt_that_others_came_after_and_that_is_gone_is_lost(store: Store) -> None:
    redone = {"stop_reason": StopReason.MODEL_ERROR, "turns": (), "best_turn": None, "error": "the server left"}
    first = next(episodes(store))
    opening = first.messages[: [message.role for message in first.messages].index("assistant")]
    change_episode(store, lambda one: renamed(one, **redone, messages=opening))
    add(store, lambda _: renamed(first, attempt=3))
    [fault] = check(store).faults
    assert (fault.kind, fault.what) == ("lost", "1 of the attempts before it are not here")
    add(store, lambda _: renamed(first, **redone, messages=opening, attempt=2))
    assert check(store).faults == ()


async def test_a_task_that_was_left_out_is_missing_once_a_later_start_is_asked_for_it(tmp_path: Path) -> None:
    store = await sound_store(tmp_path, 5, planned=6)
    first = json.loads(store.get(change_start(store, left_out=["folder/t5"], planned=6)) or b"")
    assert (check(store).state, check(store).missing) == ("complete", ())
    later = json.dumps(first | {"left_out": [], "ending": "signal"}).encode()
    store.replace(f"{STARTS_PREFIX}start-29991231T235959Z-00000000.json", later)
    found = check(store)
    assert (found.state, len(found.missing), found.sound) == ("unfinished", 1, True)
