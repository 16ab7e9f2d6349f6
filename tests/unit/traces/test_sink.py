"""The sink loses nothing and repeats nothing: in order, under load, in outages, under kill -9."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb_ray.errors import StoreError
from kb_ray.traces.layout import list_parts
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import LocalStore
from tests.unit.traces.examples import make_episode
from tests.unit.traces.killing import kill_until_done, samples_in_parts


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "out"))


class Obstacle:
    """A file where the store's folder should be: every write fails until it is gone."""

    def __init__(self, store: LocalStore) -> None:
        self._path = Path(store.uri)
        self._path.write_text("")

    def remove(self) -> None:
        self._path.unlink()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.01)
    return condition()


def test_a_part_is_written_every_save_interval_episodes(store: LocalStore) -> None:
    sink = TraceSink(store, save_interval=3)
    for sample in range(7):
        sink.add(make_episode(sample=sample))
    assert eventually(lambda: sink.written == 6)
    assert (sink.parts, sink.waiting) == (2, 1)
    sink.close()
    assert (sink.parts, sink.written, sink.waiting) == (3, 7, 0)
    assert sink.bytes == sum(path.stat().st_size for path in (Path(store.uri) / "parts").iterdir())


def test_a_part_is_written_when_enough_text_waits(store: LocalStore) -> None:
    sink = TraceSink(store, save_interval=1000, max_bytes=10_000)
    sink.add(make_episode(text="x" * 20_000))
    assert eventually(lambda: sink.written == 1)
    sink.close()


def test_a_part_is_written_when_an_episode_has_waited_long_enough(store: LocalStore) -> None:
    sink = TraceSink(store, save_interval=1000, max_seconds=0.3)
    time.sleep(0.4)
    sink.add(make_episode())
    time.sleep(0.1)
    assert sink.written == 0
    assert eventually(lambda: sink.written == 1)
    sink.close()


def test_after_a_flush_everything_added_is_in_the_store(store: LocalStore) -> None:
    sink = TraceSink(store, save_interval=1000)
    for sample in range(5):
        sink.add(make_episode(sample=sample))
        sink.flush()
        assert set(samples_in_parts(store)) == set(range(sample + 1))
    sink.flush()
    assert sink.parts == 5
    sink.close()


def test_many_threads_add_and_each_episode_is_written_once(store: LocalStore) -> None:
    sink = TraceSink(store, save_interval=7)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda sample: sink.add(make_episode(sample=sample)), range(200)))
    sink.close()
    assert samples_in_parts(store) == dict.fromkeys(range(200), 1)


def test_a_closed_sink_takes_nothing_and_closes_twice(store: LocalStore) -> None:
    sink = TraceSink(store)
    sink.close()
    sink.close()
    with pytest.raises(StoreError, match="closed"):
        sink.add(make_episode())
    assert not Path(store.uri).exists()


def test_whatever_add_took_while_closing_is_written(store: LocalStore) -> None:
    sink = TraceSink(store, save_interval=1000)
    taken = []

    def keep_adding() -> None:
        for sample in range(100_000):
            try:
                sink.add(make_episode(sample=sample))
            except StoreError:
                return
            taken.append(sample)

    adding = threading.Thread(target=keep_adding)
    adding.start()
    assert eventually(lambda: len(taken) > 20)
    sink.close()
    adding.join()
    assert samples_in_parts(store) == dict.fromkeys(taken, 1)


def test_an_outage_is_told_once_and_loses_nothing(store: LocalStore, caplog: pytest.LogCaptureFixture) -> None:
    obstacle = Obstacle(store)
    with caplog.at_level(logging.WARNING, "kb_ray"):
        sink = TraceSink(store, save_interval=2)
        for sample in range(6):
            sink.add(make_episode(sample=sample))
        time.sleep(1.2)
        obstacle.remove()
        sink.flush(timeout=10)
    sink.close()
    assert samples_in_parts(store) == dict.fromkeys(range(6), 1)
    assert len(caplog.records) == 2
    assert "out" in caplog.records[0].message
    assert caplog.records[1].message.endswith("takes writes again")


def test_add_waits_while_too_many_episodes_are_unsaved(store: LocalStore) -> None:
    obstacle = Obstacle(store)
    sink = TraceSink(store, save_interval=1, max_waiting=4)
    for sample in range(4):
        sink.add(make_episode(sample=sample))
    fifth = threading.Thread(target=sink.add, args=(make_episode(sample=4),))
    fifth.start()
    fifth.join(0.3)
    assert fifth.is_alive()
    obstacle.remove()
    fifth.join(10)
    assert not fifth.is_alive()
    sink.close()
    assert samples_in_parts(store) == dict.fromkeys(range(5), 1)


def test_a_sink_that_gave_up_says_so_to_everyone(store: LocalStore) -> None:
    Obstacle(store)
    sink = TraceSink(store, save_interval=1, give_up_s=0.2)
    sink.add(make_episode())
    with pytest.raises(StoreError, match="trace store"):
        sink.flush()
    with pytest.raises(StoreError):
        sink.add(make_episode(sample=1))
    with pytest.raises(StoreError):
        sink.close()
    assert sink.written == 0


def test_closing_in_an_outage_ends_in_time_and_counts_what_is_lost(store: LocalStore) -> None:
    Obstacle(store)
    sink = TraceSink(store, save_interval=2)
    for sample in range(3):
        sink.add(make_episode(sample=sample))
    began = time.monotonic()
    with pytest.raises(StoreError, match="3 finished episodes not saved within 1 s"):
        sink.close(timeout=1)
    assert time.monotonic() - began < 20
    assert eventually(lambda: not any(t.name == "trace-sink" for t in threading.enumerate()))


def test_an_episode_that_no_file_can_hold_is_reported_not_swallowed(store: LocalStore) -> None:
    sink = TraceSink(store)
    sink.add(make_episode(sample=2**63))
    with pytest.raises(StoreError, match="do not fit the trace schema"):
        sink.flush(timeout=10)


def test_kill_minus_nine_loses_nothing_saved_and_repeats_nothing(store: LocalStore) -> None:
    saved = kill_until_done(store.uri, total=120, flush_every=4, kills=4, env={})
    assert saved == sorted(saved)
    assert saved[-1] < 120
    assert samples_in_parts(store) == dict.fromkeys(range(120), 1)
    assert all(key.endswith(".parquet") for key in list_parts(store))
