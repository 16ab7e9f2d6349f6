"""Threads that wait for a place: in order, none twice, and let go when they are called back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kb_ray.bench.seats import Seats

PATIENCE_S = 20.0


@pytest.fixture
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(40)


def test_places_go_to_those_who_wait_in_the_order_of_their_coming(threads: ThreadPoolExecutor) -> None:
    seats, begun = Seats(1), []
    assert seats.take("first")

    def bring(name: str) -> None:
        assert seats.take(name)
        begun.append(name)
        seats.leave()

    futures = []
    for name in "abcde":
        futures.append(threads.submit(bring, name))
        _until(lambda name=name: name in seats._waiting)
    seats.leave()
    for future in futures:
        future.result(PATIENCE_S)
    assert begun == list("abcde")


def test_who_is_called_back_gets_no_place_and_holds_nobody_up(threads: ThreadPoolExecutor) -> None:
    seats = Seats(1)
    assert seats.take("first")
    back = threads.submit(seats.take, "back")
    _until(lambda: "back" in seats._waiting)
    next_one = threads.submit(seats.take, "next")
    _until(lambda: "next" in seats._waiting)
    assert seats.call_back("back")
    assert back.result(PATIENCE_S) is False
    assert not seats.call_back("back"), "it is not there any more"
    assert not seats.call_back("first"), "it has begun"
    seats.leave()
    assert next_one.result(PATIENCE_S) is True


def test_never_more_than_there_are_places_whatever_comes_goes_and_is_called_back(threads: ThreadPoolExecutor) -> None:
    seats, draw, lock = Seats(3), random.Random(5), threading.Lock()
    inside, most, names = 0, 0, [str(number) for number in range(200)]

    def bring(name: str) -> bool:
        nonlocal inside, most
        if not seats.take(name):
            return False
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.0005)
        with lock:
            inside -= 1
        seats.leave()
        return True

    futures = {name: threads.submit(bring, name) for name in names}
    called = {name for name in draw.sample(names, 120) if seats.call_back(name)}
    assert {name for name, future in futures.items() if not future.result(PATIENCE_S)} == called
    assert most == 3
    assert seats.take("after")


def _until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)
