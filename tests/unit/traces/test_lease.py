"""Leases on a folder: one writer at a time, named to the other, taken over when it stops moving and never before."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb_ray.errors import ConfigError, StoreError
from kb_ray.process_identity import born, lives, place
from kb_ray.traces.lease import Holder, Lease, LeaseLost, key_of
from kb_ray.traces.shards import Shard
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import LocalStore, Store, StoreUnavailable, open_store
from tests.unit.traces.examples import make_episode
from tests.unit.traces.leases import EVERY_S, LONG_S, TERM_S, content, lease, stop_moving


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "out"))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_second_is_refused_and_told_who_the_first_is(store: Store, elsewhere: bool) -> None:
    first = lease(store, elsewhere=elsewhere, run_id="20260102-030405-abcd")
    assert first.take()
    began = time.monotonic()
    with pytest.raises(ConfigError) as refused:
        lease(store).take()
    assert time.monotonic() - began < TERM_S
    told = str(refused.value)
    holder = Holder.model_validate_json(content(store))
    assert all(str(word) in told for word in ("20260102-030405-abcd", holder.host, holder.pid, holder.began_at))
    assert "\n" not in told
    first.check()
    first.release()


def test_after_a_release_the_next_waits_for_nothing(store: Store) -> None:
    for _ in range(3):
        told: list[str] = []
        one = lease(store, told=told, term_s=LONG_S)
        began = time.monotonic()
        assert one.take()
        assert time.monotonic() - began < LONG_S / 2
        assert told == []
        one.release()


def test_one_that_stopped_moving_is_taken_over_after_its_term_with_one_line_said(store: Store) -> None:
    dead = lease(store)
    dead.take()
    stop_moving(dead)
    told: list[str] = []
    began = time.monotonic()
    assert lease(store, told=told).take()
    assert TERM_S <= time.monotonic() - began < 3 * TERM_S
    assert len(told) == 1
    assert "elsewhere" in told[0]


def test_a_process_of_this_machine_that_is_gone_is_taken_over_at_once(store: Store) -> None:
    code = (
        "import os, sys; from kb_ray.traces.lease import Lease; from kb_ray.traces.shards import Shard;"
        "from kb_ray.traces.store import open_store;"
        "Lease(open_store(sys.argv[1]), Shard(), 'gone', tell=print).take(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, store.uri], check=False)
    assert Holder.model_validate_json(content(store)).run_id == "gone"
    told: list[str] = []
    began = time.monotonic()
    next_one = lease(store, told=told, term_s=60.0)
    assert next_one.take()
    assert (time.monotonic() - began < 5, told) == (True, [])
    next_one.release()


def test_a_number_that_another_process_has_now_is_not_the_holder() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        began = born(child.pid)
        assert began is not None
        assert lives(child.pid, began, place()) is True
        assert lives(child.pid, began - 1, place()) is False
        assert lives(child.pid, began, "another boot") is None
        child.kill()
        while born(child.pid) is not None:
            time.sleep(0.01)
        # Still waiting to be reaped: dead all the same.
        assert lives(child.pid, began, place()) is False


def test_of_many_that_wait_for_a_dead_one_exactly_one_gets_it(store: Store) -> None:
    dead = lease(store)
    dead.take()
    stop_moving(dead)
    rivals = [lease(store, run_id=f"r{i}") for i in range(8)]

    def attempt(one: Lease) -> bool:
        try:
            return one.take()
        except ConfigError:
            return False

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(attempt, rivals))
    assert sum(got) == 1
    winner = rivals[got.index(True)]
    winner.check()
    winner.release()


def test_a_paused_holder_may_not_write_before_it_knows_and_never_again_once_another_took_over(store: Store) -> None:
    now = [100.0]
    paused = lease(store, clock=lambda: now[0])
    paused.take()
    stop_moving(paused)
    paused.check()
    now[0] += 0.8 * TERM_S
    # Nobody has taken over yet, and nobody may for another fifth of the term.
    with pytest.raises(StoreUnavailable):
        paused.check()
    told: list[str] = []
    paused.on_loss(told.append)
    paused._renew()
    paused.check()
    other = lease(store, run_id="other")
    assert other.take()
    paused._renew()
    with pytest.raises(LeaseLost, match="taken over by run other"):
        paused.check()
    assert len(told) == 1
    other.check()
    other.release()


def test_a_sink_whose_lease_is_lost_writes_nothing_more_and_says_why(store: Store) -> None:
    held = lease(store)
    held.take()
    sink = TraceSink(store, save_interval=1, may_write=held.check)
    sink.add(make_episode(sample=0))
    sink.flush(5)
    stop_moving(held)
    other = lease(store)
    other.take()
    held._renew()
    sink.add(make_episode(sample=1))
    with pytest.raises(StoreError, match="writes no more"):
        sink.close(10)
    assert len(store.list("parts/")) == 1
    other.release()


def test_a_sink_waits_while_its_lease_is_not_renewed_and_goes_on_when_it_is(store: Store) -> None:
    blocked = [True]

    def may_write() -> None:
        if blocked[0]:
            raise StoreUnavailable("not renewed")

    sink = TraceSink(store, save_interval=1, may_write=may_write)
    sink.add(make_episode())
    time.sleep(0.3)
    assert store.list("parts/") == []
    blocked[0] = False
    sink.close(10)
    assert len(store.list("parts/")) == 1


def test_times_that_somebody_wrote_down_decide_nothing(store: Store) -> None:
    held = lease(store)
    held._holder = held._holder.model_copy(update={"began_at": "1970-01-01T00:00:00+00:00"})
    held.take()
    with pytest.raises(ConfigError, match="1970"):
        lease(store).take()
    held.release()


class Flaky(LocalStore):
    """Fails every conditional put for a while, as a store that is away."""

    away = False

    def replace_if(self, key: str, data: bytes, version: str) -> str | None:
        if self.away:
            raise StoreUnavailable("away")
        return super().replace_if(key, data, version)


class Forgetful(LocalStore):
    """Does what it is told and says that the content had changed: an answer that was lost, and tried again."""

    def replace_if(self, key: str, data: bytes, version: str) -> str | None:
        super().replace_if(key, data, version)
        return None


def test_a_store_that_is_away_for_longer_than_a_term_costs_nobody_the_lease(tmp_path: Path) -> None:
    store = Flaky(str(tmp_path))
    held = lease(store)
    held.take()
    store.away = True
    time.sleep(1.5 * TERM_S)
    with pytest.raises(StoreUnavailable):
        held.check()
    store.away = False
    time.sleep(3 * EVERY_S)
    held.check()
    held.release()


def test_an_answer_that_is_lost_after_the_put_landed_is_no_loss(tmp_path: Path) -> None:
    held = lease(Forgetful(str(tmp_path)))
    held.take()
    time.sleep(2 * TERM_S)
    held.check()
    held.release()


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [("1/2", "2/2", True), ("1/2", "1/2", False), (None, "1/2", False), ("2/4", None, False), ("1/2", "2/3", False),
     ("3/3", "2/3", True)],
)  # fmt: skip
def test_only_different_shards_of_one_division_run_side_by_side(
    store: Store, first: str | None, second: str | None, together: bool
) -> None:
    # Nothing here waits for an end of a term: a busy machine is not to bring one about.
    one, other = lease(store, first, term_s=60.0), lease(store, second, term_s=60.0)
    assert one.take()
    if together:
        assert other.take()
        other.release()
    else:
        with pytest.raises(ConfigError, match="--shard"):
            other.take()
        assert key_of(Shard.of(first)) == key_of(Shard.of(second)) or b'"released": true' in content(store, second)
    one.check()
    one.release()


def test_a_dead_start_of_another_division_is_closed_for_good(store: Store) -> None:
    dead = lease(store, "1/2")
    dead.take()
    stop_moving(dead)
    whole = lease(store)
    assert whole.take()
    dead._renew()
    with pytest.raises(LeaseLost):
        dead.check()
    whole.release()


def test_giving_up_waiting_is_possible(store: Store) -> None:
    dead = lease(store, term_s=60.0)
    dead.take()
    stop_moving(dead)
    enough = threading.Event()
    threading.Timer(0.2, enough.set).start()
    waiting = lease(store, term_s=1.0)
    began = time.monotonic()
    assert waiting.take(enough.is_set) is False
    assert time.monotonic() - began < 10


def test_a_lease_with_a_word_of_a_later_version_holds_all_the_same(store: Store) -> None:
    held = lease(store, elsewhere=False)
    assert held.take()
    stop_moving(held)
    store.replace(key_of(Shard()), content(store).replace(b"{", b'{"region": "x", ', 1))
    with pytest.raises(ConfigError, match=r"run run on"):
        lease(store).take()
