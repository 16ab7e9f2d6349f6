"""A write is repeated through an outage for as long as is worth it, told once, and no longer than it is wanted."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kb_ray.errors import StoreError
from kb_ray.traces import outages
from kb_ray.traces.lease import LeaseLost
from kb_ray.traces.outages import in_thread, outlast, outlasting
from kb_ray.traces.store import StoreRefused, StoreUnavailable


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(outages, "time", made)
    return made


def failing(error: StoreError, until_s: float, clock: Clock) -> str:
    if clock.now < until_s:
        raise error
    return "written"


@pytest.mark.parametrize(("error", "seconds"), [(StoreUnavailable("away"), 860.0), (StoreRefused("no"), 50.0)])
def test_a_write_outlasts_what_passes_and_it_is_told_once(clock: Clock, error: StoreError, seconds: float) -> None:
    said: list[str] = []
    assert outlast(lambda: failing(error, seconds, clock), "s3://b", said.append) == "written"
    assert clock.now >= seconds
    assert said == [f"{error}; trying on", "trace store s3://b takes writes again"]


@pytest.mark.parametrize(
    ("error", "least", "most"),
    [
        (StoreUnavailable("away"), 900.0, 931.0),
        (StoreRefused("no"), 60.0, 91.0),
        (LeaseLost("another"), 0.0, 0.0),
        (StoreError("damaged"), 0.0, 0.0),
    ],
)
def test_it_is_given_up_in_its_time_and_at_once_where_it_is_final(
    clock: Clock, error: StoreError, least: float, most: float
) -> None:
    with pytest.raises(type(error)):
        outlast(lambda: failing(error, 1e9, clock), "s3://b", lambda line: None)
    assert least <= clock.now <= most


def test_a_refusal_counts_from_when_the_store_answers_again(clock: Clock) -> None:
    def write() -> str:
        return failing(StoreUnavailable("away") if clock.now < 300 else StoreRefused("starting"), 340.0, clock)

    assert outlast(write, "s3://b", lambda line: None) == "written"


def test_a_write_that_lands_is_not_told(clock: Clock) -> None:
    outlast(lambda: 1, "s3://b", pytest.fail)


async def test_a_pause_ends_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 60.0)
    said: list[str] = []

    async def write() -> None:
        raise StoreUnavailable("away")

    waiting = asyncio.create_task(outlasting(write, "s3://b", said.append))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert time.monotonic() - began < 30
    assert said == ["away; trying on"]


async def test_in_a_loop_a_write_outlasts_an_outage_too() -> None:
    left = [StoreUnavailable("away"), StoreRefused("no")]
    said: list[str] = []

    def write() -> str:
        if left:
            raise left.pop()
        return "written"

    assert await outlasting(lambda: in_thread(write), "s3://b", said.append) == "written"
    assert len(said) == 2


async def test_a_write_in_a_thread_is_over_when_its_caller_was_cancelled() -> None:
    begun, go, over = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        assert go.wait(20)
        over.set()

    caller = asyncio.create_task(in_thread(write))
    assert await asyncio.to_thread(begun.wait, 20)
    caller.cancel()
    await asyncio.sleep(0.05)
    assert not caller.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert over.is_set()
