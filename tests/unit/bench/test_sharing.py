"""Who is on the card: shared work together, timing alone with all other processes stopped, memory by reservation."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb_ray.bench.child.blame import may_be_company
from kb_ray.bench.child.card import Budget
from kb_ray.bench.child.exclusive import Slot
from kb_ray.records import Stage, Status


class Process:
    """A real process that can be stopped."""

    def __init__(self) -> None:
        self.popen = subprocess.Popen(["sleep", "60"])

    def pause(self) -> None:
        os.kill(self.popen.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.popen.pid, signal.SIGCONT)

    @property
    def stopped(self) -> bool:
        deadline = time.monotonic() + 2
        while (state := self._state()) not in "TS" and time.monotonic() < deadline:
            time.sleep(0.01)
        return state == "T"

    def _state(self) -> str:
        return Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made = [Process(), Process()]
    yield made
    for process in made:
        process.popen.kill()
        process.popen.wait()


def test_all_but_the_timed_process_stand_still_and_go_on_afterwards(processes: list[Process]) -> None:
    slot, (timed, other) = Slot(), processes
    slot.join(timed)
    slot.join(other)
    with slot.alone(timed):
        assert other.stopped
        assert not timed.stopped
        before = slot.clock(other), slot.clock(timed)
        time.sleep(0.05)
        assert slot.clock(other) == pytest.approx(before[0], abs=0.01)
        assert slot.clock(timed) >= before[1] + 0.05
    assert not other.stopped
    slot.leave(other)
    with slot.alone(timed):
        assert not other.stopped


def test_a_process_that_begins_while_one_is_alone_is_that_one(processes: list[Process]) -> None:
    slot = Slot()
    with slot.alone():
        slot.join(processes[0])
        began = slot.clock(processes[0])
        time.sleep(0.02)
        assert slot.clock(processes[0]) >= began + 0.02


def test_who_was_on_the_card_together_has_met_whoever_came_first(processes: list[Process]) -> None:
    slot, (early, late) = Slot(), processes
    slot.join(early)
    assert not slot.met(early)
    slot.join(late)
    assert slot.met(early)
    assert slot.met(late)
    slot.leave(late)
    assert slot.met(early)
    slot.leave(early)
    slot.join(late)
    assert not slot.met(late)


@pytest.mark.parametrize(
    ("status", "stage", "repeated"),
    [
        (Status.OOM, Stage.FULL, True),
        (Status.OOM, Stage.TIMING, True),
        (Status.TIMEOUT, Stage.FULL, True),
        (Status.TIMEOUT, Stage.TIMING, False),
        (Status.MISMATCH, Stage.FULL, False),
    ],
)
def test_memory_of_those_that_are_stopped_counts_and_their_time_does_not(
    status: Status, stage: Stage, repeated: bool
) -> None:
    assert may_be_company(status, stage) == repeated


def test_alone_waits_for_shared_and_new_shared_waits_for_it() -> None:
    slot, order, entered = Slot(), list[str](), threading.Event()

    def timing() -> None:
        with slot.alone():
            order.append("alone")
            time.sleep(0.05)

    def late() -> None:
        with slot.shared():
            order.append("late")

    with slot.shared(), slot.shared():
        threads = [threading.Thread(target=timing), threading.Thread(target=late)]
        threads[0].start()
        time.sleep(0.05)
        threads[1].start()
        time.sleep(0.05)
        order.append("first")
        entered.set()
    for thread in threads:
        thread.join()
    assert order == ["first", "alone", "late"]


def test_shared_within_alone_goes_through() -> None:
    slot = Slot()
    with slot.alone(), slot.shared(), slot.alone():
        pass
    with slot.shared():
        pass


def test_no_more_memory_is_reserved_than_there_is_and_a_giant_gets_all() -> None:
    budget, log, lock = Budget(10), list[int](), threading.Lock()
    in_use = [0]

    def use(size: int) -> None:
        with budget.reserve(size):
            with lock:
                in_use[0] += min(size, 10)
                log.append(in_use[0])
            time.sleep(0.01)
            with lock:
                in_use[0] -= min(size, 10)

    threads = [threading.Thread(target=use, args=(size,)) for size in (4, 4, 4, 99, 6, 3, 99, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(log) == 8
    assert max(log) <= 10


def test_a_giant_is_not_passed_by_whoever_comes_after_it() -> None:
    budget, order = Budget(10), list[int]()
    first, leave = threading.Event(), threading.Event()

    def use(size: int, before: threading.Event | None, after: threading.Event | None) -> None:
        with budget.reserve(size):
            order.append(size)
            if after is not None:
                after.set()
            if before is not None:
                assert before.wait(10)

    threads = [threading.Thread(target=use, args=(4, leave, first))]
    threads[0].start()
    assert first.wait(10)
    for size in (10, 3, 2):
        threads.append(threading.Thread(target=use, args=(size, None, None)))
        threads[-1].start()
        time.sleep(0.05)
    leave.set()
    for thread in threads:
        thread.join(10)
    assert order[:2] == [4, 10]
    assert sorted(order[2:]) == [2, 3]


def test_nothing_is_counted_where_there_is_no_limit() -> None:
    with Budget(None).reserve(1 << 60):
        pass
