"""Leases on the server: its conditional put lets one of many win, and a dead holder's lease passes to one start."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from kb_ray.errors import ConfigError
from kb_ray.traces.lease import Lease, LeaseLost
from kb_ray.traces.store import Store, open_store
from tests.fixtures_s3 import S3Server
from tests.s3.proxy import AnswerEatingProxy
from tests.unit.traces.leases import TERM_S, lease, stop_moving


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}")


def test_of_many_that_replace_one_content_at_once_exactly_one_does(store: Store) -> None:
    store.put_if_absent("x", b"0")
    for number in range(1, 11):
        found = store.versioned("x")
        assert found is not None

        def replace(rival: int, number: int = number, version: str = found[1]) -> str | None:
            return store.replace_if("x", f"{number} by {rival}".encode(), version)

        with ThreadPoolExecutor(16) as pool:
            versions = [version for version in pool.map(replace, range(16)) if version is not None]
        assert len(versions) == 1
        found = store.versioned("x")
        assert found is not None
        assert found[1] == versions[0]


def test_what_is_gone_or_another_is_not_replaced(store: Store) -> None:
    assert store.versioned("x") is None
    assert store.replace_if("x", b"1", '"' + "0" * 32 + '"') is None
    store.put_if_absent("x", b"0")
    assert store.replace_if("x", b"1", '"' + "0" * 32 + '"') is None
    assert store.get("x") == b"0"


def test_a_holder_is_named_and_once_it_stops_moving_one_of_many_takes_over(store: Store) -> None:
    first = lease(store, run_id="first")
    assert first.take()
    with pytest.raises(ConfigError, match="run first on elsewhere"):
        lease(store).take()
    stop_moving(first)

    def attempt(one: Lease) -> bool:
        try:
            return one.take()
        except ConfigError:
            return False

    rivals = [lease(store, run_id=f"r{i}") for i in range(5)]
    began = time.monotonic()
    with ThreadPoolExecutor(5) as pool:
        got = list(pool.map(attempt, rivals))
    assert time.monotonic() - began >= TERM_S
    assert sum(got) == 1
    first._renew()
    with pytest.raises(LeaseLost):
        first.check()
    rivals[got.index(True)].release()


def test_an_answer_that_is_lost_after_the_put_costs_nobody_the_lease(s3_server: S3Server, store: Store) -> None:
    proxy = AnswerEatingProxy(s3_server.endpoint, drop=0)
    held = lease(open_store(store.uri, endpoint_url=proxy.endpoint), term_s=20.0)
    assert held.take()
    try:
        before = held._holder.beat
        proxy._drop = 2
        deadline = time.monotonic() + 120
        while (proxy.dropped < 2 or held._holder.beat < before + 3) and time.monotonic() < deadline:
            held.check()
            time.sleep(0.1)
        assert (proxy.dropped, held._holder.beat >= before + 3) == (2, True)
    finally:
        held.release()
        proxy.close()
    next_one = lease(store)
    assert next_one.take()
    next_one.release()
