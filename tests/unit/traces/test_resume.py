"""What a store says it holds: the highest attempt of each sample, fast, and whatever else lies there."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kb_ray.errors import StoreError
from kb_ray.records import StopReason
from kb_ray.traces.layout import part_key
from kb_ray.traces.resume import finished
from kb_ray.traces.schema import SCHEMA, encode, table_bytes, table_of
from kb_ray.traces.store import LocalStore
from kb_ray.traces.views import episodes
from tests.unit.traces.examples import make_episode, make_turn


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "out"))


def put(store: LocalStore, *some: object) -> None:
    data = table_bytes(some)  # type: ignore[arg-type]
    store.put_if_absent(part_key(data), data)


def test_a_store_that_does_not_exist_holds_nothing(store: LocalStore) -> None:
    assert finished(store) == {}
    assert list(episodes(store)) == []


def test_the_highest_attempt_counts_wherever_it_lies(store: LocalStore) -> None:
    put(store, make_episode(attempt=2), make_episode(sample=1))
    put(store, make_episode(attempt=1, stop=StopReason.INFRA_ERROR))
    done = finished(store)
    assert {key: episode.attempt for key, episode in done.items()} == {
        ("builtin/1/add_relu", 0): 2,
        ("builtin/1/add_relu", 1): 1,
    }
    assert [(e.sample, e.attempt) for e in episodes(store)] == [(0, 2), (1, 1)]


def test_how_an_episode_ended_is_told(store: LocalStore) -> None:
    put(store, make_episode("a"), make_episode("b", stop=StopReason.MODEL_ERROR))
    done = finished(store)
    assert (done["builtin/1/a", 0].stop_reason, done["builtin/1/a", 0].correct) == (
        StopReason.SUCCESS_FAST,
        True,
    )
    assert done["builtin/1/b", 0].stop_reason is StopReason.MODEL_ERROR
    assert not done["builtin/1/b", 0].correct


def test_an_episode_written_twice_is_read_once(store: LocalStore) -> None:
    put(store, make_episode())
    put(store, make_episode(), make_episode("other"))
    assert [e.task.name for e in episodes(store)] == ["add_relu", "other"]


def test_episodes_come_back_as_they_were(store: LocalStore) -> None:
    wanted = [make_episode("a"), make_episode("b", stop=StopReason.INFRA_ERROR)]
    put(store, *wanted)
    assert list(episodes(store)) == wanted


def test_a_damaged_part_is_named(store: LocalStore) -> None:
    store.put_if_absent("parts/part-x.parquet", b"PAR1 not really")
    with pytest.raises(StoreError, match=r"parts/part-x\.parquet is not a readable trace file") as caught:
        finished(store)
    assert "\n" not in str(caught.value)


def test_a_parquet_file_of_another_kind_is_named(store: LocalStore, tmp_path: Path) -> None:
    pq.write_table(table_of([make_episode()]).select(["name"]), tmp_path / "foreign")
    store.put_if_absent("parts/foreign.parquet", (tmp_path / "foreign").read_bytes())
    with pytest.raises(StoreError, match=r"parts/foreign\.parquet"):
        finished(store)


def test_a_part_of_a_newer_version_is_refused(store: LocalStore) -> None:
    newer = table_of([make_episode()]).replace_schema_metadata({b"kb_ray.schema_version": b"99"})
    assert newer.schema.equals(SCHEMA)
    store.put_if_absent("parts/newer.parquet", encode(newer))
    with pytest.raises(StoreError, match="schema version 99"):
        finished(store)


def test_ten_thousand_episodes_are_known(store: LocalStore) -> None:
    # Long answers are what parts are made of; a reader that fetched them would need far longer.
    turn = make_turn(0, make_episode().turns[1].verdict)
    long_turn = turn.model_copy(update={"completion": turn.completion.model_copy(update={"text": "token " * 2000})})
    base = make_episode().model_copy(update={"turns": (long_turn,), "best_turn": 0})
    for part in range(100):
        put(store, *(base.model_copy(update={"sample": 100 * part + i}) for i in range(100)))
    assert len(finished(store)) == 10_000
