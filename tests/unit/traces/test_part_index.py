"""Indexes of parts: what they tell is what the parts hold, and without them or with damaged ones nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.traces import resume, sink
from kb_ray.traces.layout import list_parts
from kb_ray.traces.part_index import INDEX_PREFIX, read_index
from kb_ray.traces.resume import finished
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import LocalStore
from tests.unit.traces.examples import make_episode


class Counting(LocalStore):
    """Counts which parts are opened."""

    opened = 0

    def open(self, key: str):  # type: ignore[no-untyped-def]
        self.opened += key.startswith("parts/")
        return super().open(key)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """23 parts of two rows, of which indexes tell of 20."""
    monkeypatch.setattr(sink, "PARTS_PER_INDEX", 10)
    monkeypatch.setattr(resume, "_FEW", 5)
    made = Counting(str(tmp_path))
    writer = TraceSink(made, save_interval=2)
    for sample in range(46):
        writer.add(make_episode(sample=sample))
    writer.close()
    return made


def test_a_start_opens_only_the_parts_that_no_index_tells_of(store: Counting) -> None:
    assert len(store.list(INDEX_PREFIX)) == 2
    with_index = finished(store)
    assert (len(with_index), store.opened) == (46, 3)
    for key in store.list(INDEX_PREFIX):
        store.delete(key)
    assert finished(store) == with_index
    assert store.opened == 3 + 23


@pytest.mark.parametrize("data", [b"", b"PAR1 not", None])
def test_a_damaged_index_is_passed_over(store: Counting, data: bytes | None) -> None:
    before = finished(store)
    key = store.list(INDEX_PREFIX)[0]
    whole = store.get(key)
    assert whole is not None
    store.replace(key, whole[:-1] + b"x" if data is None else data)
    store.opened = 0
    assert finished(store) == before
    assert store.opened == 13


def test_a_part_that_was_moved_away_is_not_believed_to_be_there(store: Counting) -> None:
    store.delete(list_parts(store)[0])
    assert len(finished(store)) == 44
    assert len(read_index(store)) == 20
