"""Leases at the edges: starts at one moment of which exactly one may go on, and leases that nobody can read."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.traces.lease import Holder, Lease, LeaseLost, key_of
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import LocalStore, Store, open_store
from tests.unit.traces.leases import EVERY_S, LONG_S, TERM_S, content, lease, stop_moving


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "out"))


def at_once(leases: list[Lease]) -> list[bool]:
    """Which of them may go on, where all begin at one moment."""
    together = threading.Barrier(len(leases))

    def attempt(one: Lease) -> bool:
        together.wait()
        try:
            return one.take()
        except ConfigError:
            return False

    with ThreadPoolExecutor(len(leases)) as pool:
        return list(pool.map(attempt, leases))


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("shards", [("1/1", "1/2"), ("2/3", "1/2"), ("1/1", "1/2", "1/3")])
def test_of_starts_that_overlap_and_begin_at_one_moment_exactly_one_goes_on(
    tmp_path: Path, shards: tuple[str, ...], elsewhere: bool
) -> None:
    for turn in range(3):
        store = open_store(str(tmp_path / str(turn)))
        leases = [lease(store, shard, elsewhere=elsewhere) for shard in shards]
        got = at_once(leases)
        assert sum(got) == 1, got
        leases[got.index(True)].check()
        for one in leases:
            one.release()


class Slow(LocalStore):
    """Takes a while to tell what is there, so that all have their keys before any looks for others."""

    def list(self, prefix: str) -> list[str]:
        time.sleep(0.2)
        return super().list(prefix)


def test_the_whole_run_gives_way_to_shards_that_begin_with_it(tmp_path: Path) -> None:
    store = Slow(str(tmp_path))
    leases = [lease(store, shard, elsewhere=False) for shard in ("1/1", "1/2", "2/2")]
    assert at_once(leases) == [False, True, True]
    for one in leases:
        one.release()


def test_one_that_went_on_is_not_waited_for_by_who_would_have_been_first(store: Store) -> None:
    whole = lease(store, elsewhere=False)
    assert whole.take()
    began = time.monotonic()
    with pytest.raises(ConfigError, match="--shard"):
        lease(store, "1/2", elsewhere=False, term_s=60.0).take()
    assert time.monotonic() - began < 10
    whole.check()
    assert Holder.model_validate_json(content(store)).entering is False
    whole.release()


def test_one_that_stands_still_before_it_went_on_is_waited_for_a_term_and_no_longer(store: Store) -> None:
    whole = lease(store, elsewhere=False)
    assert whole.take()
    stop_moving(whole)
    here = Holder.model_validate_json(content(store)).model_copy(update={"entering": True})
    store.replace(key_of(Shard()), here.model_dump_json().encode())
    began = time.monotonic()
    with pytest.raises(ConfigError, match="--shard"):
        lease(store, "1/2", elsewhere=False).take()
    assert TERM_S <= time.monotonic() - began < 3 * TERM_S


def test_of_any_two_shards_that_overlap_one_yields() -> None:
    every = [Shard(index=index, count=count) for count in range(1, 6) for index in range(1, count + 1)]
    for one in every:
        assert not one.yields_to(one)
        assert all(one.yields_to(other) != other.yields_to(one) for other in every if other != one)


@pytest.mark.parametrize("junk", [b"{", b"[" * 100_000, b'{"token": "x"}'])
def test_a_lease_that_cannot_be_read_is_taken_once_it_has_not_changed_for_a_term(store: Store, junk: bytes) -> None:
    store.put_if_absent(key_of(Shard()), junk)
    told: list[str] = []
    began = time.monotonic()
    one = lease(store, told=told, elsewhere=False)
    assert one.take()
    assert TERM_S <= time.monotonic() - began < 3 * TERM_S
    assert [line.count("cannot be read") for line in told] == [1]
    one.release()


@pytest.mark.parametrize("shard", [None, "1/2"])
def test_a_lease_that_cannot_be_read_and_changes_holds_others_off(store: Store, shard: str | None) -> None:
    key, over = key_of(Shard.of(shard)), threading.Event()
    store.put_if_absent(key, b"0")

    def live() -> None:
        while not over.wait(EVERY_S):
            store.replace(key, store.get(key) + b"0")  # type: ignore[operator]

    with ThreadPoolExecutor(1) as pool:
        pool.submit(live)
        try:
            with pytest.raises(ConfigError, match="written by somebody whose lease cannot be read"):
                lease(store).take()
        finally:
            over.set()


def test_a_holder_whose_lease_becomes_unreadable_writes_no_more(store: Store) -> None:
    held = lease(store)
    held.take()
    stop_moving(held)
    store.replace(key_of(Shard()), b"{")
    held._renew()
    with pytest.raises(LeaseLost, match="taken over by somebody whose lease cannot be read"):
        held.check()


def test_a_name_that_no_shard_has_is_nobodys_lease(store: Store) -> None:
    odd = [f"leases/{name}.json" for name in ("0-of-0", "7-of-2", "01-of-2", f"1-of-{'9' * 5000}"[:200], "x")]
    for key in odd:
        store.put_if_absent(key, b"{}")
    began = time.monotonic()
    one = lease(store, term_s=LONG_S)
    assert one.take()
    assert time.monotonic() - began < LONG_S / 2
    assert [store.get(key) for key in odd] == [b"{}"] * len(odd)
    one.release()
