"""When a device is trusted: what counts against it, and that verdicts wait for a check under way."""

from __future__ import annotations

import threading
import time

import pytest

from kb_ray.bench.child.health import Health, Memory, first_failure, memory_reason, xid_reason

GIB = 1 << 30


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_a_fault_of_a_program_says_nothing_against_the_gpu(xid: int) -> None:
    assert xid_reason(xid) is None


@pytest.mark.parametrize("xid", [48, 79, 95, 119])
def test_any_other_xid_is_named(xid: int) -> None:
    assert xid_reason(xid) == f"the driver reported Xid {xid}"


def test_memory_that_nobody_holds_counts_beyond_the_slack() -> None:
    assert memory_reason(GIB, baseline=GIB // 2) is None
    told = memory_reason(8 * GIB, baseline=GIB // 2)
    assert told == "7.5 GiB of GPU memory were not returned by processes that have ended"


def test_a_verdict_waits_for_the_check_that_an_earlier_one_called_for() -> None:
    passed, running = threading.Event(), threading.Event()

    def check() -> None:
        running.set()
        passed.wait(10)

    health = Health([check])
    assert health.admit() is None
    assert health.admit(suspicious=True) is None, "the suspicious verdict itself does not wait"
    assert running.wait(5)
    answers: list[str | None] = []
    waiting = threading.Thread(target=lambda: answers.append(health.admit()))
    waiting.start()
    time.sleep(0.1)
    assert answers == []
    passed.set()
    waiting.join(5)
    assert answers == [None]


def test_what_a_check_finds_holds_for_all_verdicts_after() -> None:
    health = Health([lambda: None, lambda: "sick"])
    assert health.admit(suspicious=True) is None
    assert [health.admit() for _ in range(3)] == ["sick"] * 3


def test_a_report_of_the_driver_counts_at_once_and_the_first_reason_stays() -> None:
    health = Health([])
    health.report("Xid 79")
    health.report("Xid 48")
    assert health.admit() == "Xid 79"


def test_a_check_that_fails_itself_has_found_something() -> None:
    def broken() -> None:
        raise OSError("no device")

    told = first_failure([broken])
    assert told is not None
    assert "no device" in told


class Card:
    """Memory in use as a driver tells it, gigabytes at a time."""

    def __init__(self, *used: float) -> None:
        self.used = [int(gib * GIB) for gib in used]

    def __call__(self) -> int:
        return self.used.pop(0) if len(self.used) > 1 else self.used[0]


def test_memory_that_comes_back_in_time_is_no_fault() -> None:
    released: list[bool] = []
    memory = Memory(Card(1, 9, 9, 5, 1), own=lambda: 0, idle=lambda: True)
    assert memory.returned(lambda: released.append(True)) is None
    assert released == [True], "the reference's process is ended once"


def test_memory_that_does_not_come_back_is_a_fault() -> None:
    told = Memory(Card(1, 9), own=lambda: 0, idle=lambda: True).returned(lambda: None)
    assert told is not None
    assert told.startswith("8.0 GiB")


def test_memory_that_a_stranger_takes_is_no_fault_where_the_driver_says_whose_it_is() -> None:
    released: list[bool] = []
    memory = Memory(Card(1, 9), own=Card(0.5, 8.5), idle=lambda: True)
    assert memory.returned(lambda: released.append(True)) is None
    assert released == []


def test_nothing_is_said_of_memory_while_somebody_is_at_work_or_nobody_knows() -> None:
    assert Memory(Card(1, 9), own=lambda: 0, idle=lambda: False).returned(lambda: None) is None
    assert Memory(lambda: None, own=lambda: 0, idle=lambda: True).returned(lambda: None) is None
    assert Memory(Card(1, 9), own=lambda: None, idle=lambda: True).returned(lambda: None) is None
