"""The check of a store: times that fit no clock of the run are told, and are no fault, since clocks jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kb_ray.records import StopReason
from kb_ray.traces.layout import RUN_KEY
from kb_ray.traces.store import Store
from kb_ray.traces.views import episodes
from kb_ray.verifying.checking import check
from tests.unit.verifying.sound_stores import RUN, add, change_episode, renamed

BEGAN = datetime.fromisoformat(RUN.created_at)


def odd(store: Store) -> list[str]:
    found = check(store)
    assert found.sound
    return [note for note in found.notes if "a clock was wrong" in note]


def ended(store: Store, moment: datetime) -> None:
    change_episode(store, lambda one: one.model_copy(update={"created_at": moment.isoformat()}))


@pytest.mark.parametrize("hours", [-2, 24 * 3650])
def test_an_episode_that_ended_when_the_run_was_not_is_told(store: Store, hours: int) -> None:
    assert odd(store) == []
    ended(store, BEGAN + timedelta(hours=hours))
    [note] = odd(store)
    assert note.startswith(f"1 episodes ended when the run was not (from {RUN.created_at} to ")
    assert "first folder/t0 sample 0 attempt 1" in note


def test_the_last_word_of_the_last_start_is_the_end_of_the_run(store: Store) -> None:
    key = store.list("starts/")[0]
    seen = BEGAN + timedelta(days=1)
    told = (store.get(key) or b"").decode().replace('"seen_at": "20', f'"seen_at": "{seen.isoformat()}", "was": "20')
    store.replace(key, told.encode())
    ended(store, seen)
    [note] = odd(store)
    assert note.startswith("5 episodes ended when the run was not")


def test_clocks_of_two_machines_may_differ_by_minutes(store: Store) -> None:
    ended(store, BEGAN - timedelta(minutes=50))
    assert odd(store) == []
    ended(store, datetime.now(UTC) + timedelta(minutes=50))
    assert odd(store) == []


def test_of_a_run_that_does_not_say_when_it_began_only_the_future_is_odd(store: Store) -> None:
    store.delete(RUN_KEY)
    ended(store, BEGAN - timedelta(days=900))
    assert odd(store) == []
    ended(store, datetime.now(UTC) + timedelta(days=900))
    assert len(odd(store)) == 1


def test_an_attempt_that_ended_before_an_earlier_one_is_told(store: Store) -> None:
    good = next(episodes(store))
    redone = {"stop_reason": StopReason.MODEL_ERROR, "turns": (), "best_turn": None, "error": "the server left"}
    change_episode(store, lambda one: renamed(one, **redone, messages=one.messages[:2]))
    later = datetime.fromisoformat(good.created_at) - timedelta(hours=2)
    add(store, lambda _: renamed(good, attempt=2, created_at=later.isoformat()))
    assert [note.partition(":")[0] for note in odd(store)] == [
        "1 attempts ended before earlier ones, first folder/t0 sample 0 attempt 2"
    ]
