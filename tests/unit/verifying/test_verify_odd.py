"""Content that nobody foresaw: the check of a store names it, goes on, and never ends in a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray.records import Episode
from kb_ray.traces.layout import MANIFEST_KEY, RUN_KEY, list_parts
from kb_ray.traces.plans import PLANS_PREFIX
from kb_ray.traces.starts import STARTS_PREFIX
from kb_ray.traces.store import Store
from kb_ray.verifying.checking import check
from tests.unit.verifying.sound_stores import add, change_episode, change_row, renamed, sound_store

DEEP = "[" * 100_000


def kinds(store: Store) -> list[str]:
    return [str(fault.kind) for fault in check(store).faults]


def test_a_best_turn_that_is_none_is_no_episode(store: Store) -> None:
    change_row(store, lambda row: row | {"best_turn": 5})
    assert any("best_turn is 5, of 3 turns" in fault.what for fault in check(store).faults)


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


@pytest.mark.parametrize("shard", ["x", "9/4", "0/0"])
def test_a_start_of_no_shard_is_passed_over(store: Store, shard: str) -> None:
    key = store.list(STARTS_PREFIX)[0]
    start = json.loads(store.get(key) or b"")
    store.replace(key, json.dumps(start | {"shard": shard}).encode())
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


def test_a_later_attempt_after_a_solved_one_is_needless_whatever_its_number(store: Store) -> None:
    add(store, lambda episode: renamed(episode, attempt=5))
    [fault] = check(store).faults
    assert (fault.kind, "attempt 1 was solved already" in fault.what) == ("attempt", True)
