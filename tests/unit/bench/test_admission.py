"""Waiting for a place: as many at once as there is capacity, all places given back, and when to come again."""

from __future__ import annotations

import asyncio

import pytest

from kb_ray.bench import admission
from kb_ray.bench.admission import LONGEST_RETRY_S, Admission, QueueFull


async def hold(admission: Admission, client: str, done: asyncio.Event) -> None:
    [entry] = admission.enter("o", client, "normal")
    async with admission.place(entry):
        await done.wait()


async def test_no_more_hold_a_place_than_there_is_capacity() -> None:
    places, most, done = Admission(100, lambda: 3), 0, 0

    async def work(number: int) -> None:
        nonlocal most, done
        [entry] = places.enter("o", str(number % 4), "normal")
        async with places.place(entry):
            most = max(most, places.queue.running)
            await asyncio.sleep(0)
            done += 1

    await asyncio.gather(*(work(number) for number in range(40)))
    assert (most, done, places.queue.running, places.queue.waiting) == (3, 40, 0, 0)


async def test_places_that_come_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_LOOK_AGAIN_S", 0.01)
    capacity, done = 0, asyncio.Event()
    places = Admission(10, lambda: capacity)
    waiting = asyncio.create_task(hold(places, "a", done))
    await asyncio.sleep(0.05)
    assert (places.queue.waiting, places.queue.running) == (1, 0)
    capacity = 1
    await asyncio.sleep(0.05)
    assert (places.queue.waiting, places.queue.running) == (0, 1)
    done.set()
    await waiting


@pytest.mark.parametrize("at", ["waiting", "running"])
async def test_who_is_cancelled_gives_back_its_place(at: str) -> None:
    places, done = Admission(10, lambda: 1), asyncio.Event()
    first, second = (asyncio.create_task(hold(places, name, done)) for name in "ab")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    victim, other = (first, second) if at == "running" else (second, first)
    victim.cancel()
    await asyncio.gather(victim, return_exceptions=True)
    await asyncio.sleep(0)
    assert (places.queue.running, places.queue.waiting) == (1, 0)
    done.set()
    await other
    assert (places.queue.running, places.queue.waiting) == (0, 0)


async def test_a_batch_gets_room_for_all_or_none_and_is_told_when_to_come_again() -> None:
    places = Admission(8, lambda: 0)
    with pytest.raises(QueueFull) as full:
        places.enter("o", "a", "normal", 5)
    assert places.queue.waiting == 0
    assert 1 <= full.value.retry_after_s <= LONGEST_RETRY_S
    entries = places.enter("o", "a", "normal", 4)
    assert places.queue.waiting == 4
    for entry in entries:
        places.leave(entry)
    assert places.queue.waiting == 0


async def test_the_wait_that_is_told_grows_with_the_queue_and_shrinks_with_speed() -> None:
    places = Admission(4000, lambda: 2)
    told = []
    for seconds in (0.001, 1.0, 1000.0):
        places._seconds = seconds
        told.append(places._retry_after())
        places.enter("o", "a", "normal", 40)
        told.append(places._retry_after())
    assert told == [1, 1, 10, 20, LONGEST_RETRY_S, LONGEST_RETRY_S]
