"""A large task's next case is made beside the candidate, within the memory that was reserved for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from kb_ray.bench.child.ahead import Ahead
from kb_ray.bench.child.blame import lacks_memory
from kb_ray.bench.child.card import PROCESS_BYTES, Card
from kb_ray.bench.child.cases import Case
from kb_ray.bench.child.machine import Machine
from kb_ray.errors import InfraError

CASE = cast(Case, object())


def test_a_case_is_made_while_its_taker_is_elsewhere() -> None:
    begun, wanted = threading.Event(), threading.Event()

    def make() -> Case:
        begun.set()
        assert wanted.wait(10)
        return CASE

    with ThreadPoolExecutor(1) as pool, Ahead(pool) as ahead:
        ahead.begin(1, make)
        assert begun.wait(10)
        wanted.set()
        assert ahead.take(1) is CASE
        assert ahead.take(1) is None


def test_without_it_nothing_is_made() -> None:
    with Ahead() as ahead:
        ahead.begin(0, lambda: pytest.fail("made"))
        assert ahead.take(0) is None


def test_what_goes_wrong_is_told_to_the_taker_alone() -> None:
    def make() -> Case:
        raise InfraError("gone")

    with ThreadPoolExecutor(1) as pool, Ahead(pool) as ahead:
        ahead.begin(0, make)
        with pytest.raises(InfraError, match="gone"):
            ahead.take(0)
        ahead.begin(1, make)  # and nobody takes it


def test_nothing_is_under_way_after_it() -> None:
    begun, done = threading.Event(), threading.Event()

    def make() -> Case:
        begun.set()
        done.wait(0.2)
        done.set()
        return CASE

    with ThreadPoolExecutor(1) as pool:
        with Ahead(pool) as ahead:
            ahead.begin(0, make)
            ahead.begin(1, lambda: pytest.fail("begun after its evaluation had ended"))
            assert begun.wait(10)
        assert done.is_set()


@pytest.mark.parametrize(("memory", "fits"), [(None, False), (PROCESS_BYTES + 700, True), (PROCESS_BYTES + 699, False)])
def test_one_more_case_is_made_where_there_is_memory_for_it(memory: int | None, fits: bool) -> None:
    assert Card(cast(Machine, None), True, memory).fits_one_more(100) is fits


def test_a_card_without_room_is_told_from_a_broken_one() -> None:
    assert lacks_memory("CUDA out of memory. Tried to allocate 2 GiB")
    assert lacks_memory("CUDA error: CUDA-capable device(s) is/are busy or unavailable")
    assert not lacks_memory("CUDA error: an illegal memory access was encountered")
