"""Properties of what a start tells its store of itself: news while it lives, a last word, and no harm done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kb_ray.errors import StoreError
from kb_ray.tally import Tally
from kb_ray.traces.starts import Start, read_starts
from kb_ray.traces.store import LocalStore, open_store
from kb_ray.watching import presence as presence_module
from kb_ray.watching.presence import Presence


def tally() -> Tally:
    return Tally(total=10, earlier=3, started=time.monotonic())


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def only(store: LocalStore) -> Start:
    [start] = read_starts(store)
    return start


def test_a_start_is_seen_from_its_beginning_and_news_follow(tmp_path: Path) -> None:
    store, counts = LocalStore(str(tmp_path)), tally()
    presence = Presence(store, "r", counts, every_s=0.02)
    until(lambda: bool(read_starts(store)))
    assert (only(store).ending, only(store).planned, only(store).earlier) == (None, 10, 3)
    counts.finished, counts.waiting_on_model, counts.generating = 4, 3, 2
    until(lambda: only(store).finished == 4)
    assert (only(store).waiting_on_model, only(store).generating) == (3, 2)
    presence.end("budget", "--max-hours 2\nreached")
    assert (only(store).ending, only(store).message) == ("budget", "--max-hours 2 reached")
    presence.end("done")
    assert only(store).ending == "budget"


def test_two_starts_keep_apart_and_one_that_nobody_understands_is_left_out(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for kind in ("signal", "done"):
        Presence(store, "r", tally()).end(kind)
    store.replace("starts/start-99999999T000000Z-0.json", b'{"of": "the future"}')
    assert sorted(str(start.ending) for start in read_starts(store)) == ["done", "signal"]


class Broken(LocalStore):
    """Refuses every write, or never comes back from one."""

    def __init__(self, path: str, hang: threading.Event | None = None) -> None:
        super().__init__(path)
        self._hang = hang

    def replace(self, key: str, data: bytes) -> None:
        if self._hang is not None:
            self._hang.wait(60)
        raise StoreError("the store is gone")


def test_a_store_that_refuses_costs_nothing(tmp_path: Path) -> None:
    presence = Presence(Broken(str(tmp_path)), "r", tally(), every_s=0.01)
    time.sleep(0.05)
    presence.end("done")
    assert read_starts(open_store(str(tmp_path))) == []


def test_a_store_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "_LAST_WORD_S", 0.1)
    hang = threading.Event()
    presence = Presence(Broken(str(tmp_path), hang), "r", tally())
    began = time.monotonic()
    presence.end("signal")
    assert time.monotonic() - began < 20
    hang.set()
