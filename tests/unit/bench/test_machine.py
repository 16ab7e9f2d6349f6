"""Whose memory of a GPU it is, as far as the driver tells: here a played one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kb_ray.bench.child import machine
from kb_ray.bench.child.machine import Machine, Nvml

MIB = 1 << 20
UNKNOWN = (1 << 64) - 1


class Driver:
    """Lists the given processes as NVML does, and one more that holds `own` bytes: this one."""

    def __init__(self, others: list[int], code: int = 0) -> None:
        self.others, self.code, self.own, self.lists_own = others, code, 600 * MIB, True

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, processes: Any) -> int:
        listed = [*self.others, *([self.own] if self.lists_own else [])]
        assert count._obj.value >= len(listed)
        count._obj.value = len(listed)
        for place, used in zip(processes, listed, strict=False):
            place.pid, place.used = 7, used
        return self.code


def nvml(driver: Driver) -> Nvml:
    made = Nvml.__new__(Nvml)
    made._lib, made._handle = driver, None
    return made


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Driver], Machine]:
    """A machine with that driver, on which this process takes memory."""

    def made(driver: Driver) -> Machine:
        def empty(size: int, **_: Any) -> object:
            driver.own += size
            return object()

        played = SimpleNamespace(
            empty=empty, uint8=None, cuda=SimpleNamespace(empty_cache=lambda: None), OutOfMemoryError=MemoryError
        )
        monkeypatch.setattr(machine, "torch", played)
        found = Machine.__new__(Machine)
        found._nvml = nvml(driver)
        return found

    return made


def test_what_living_processes_hold_is_added_up() -> None:
    assert nvml(Driver([])).held_bytes() == 600 * MIB
    assert nvml(Driver([MIB, 2 * MIB])).held_bytes() == 603 * MIB


@pytest.mark.parametrize("driver", [Driver([UNKNOWN]), Driver([MIB], code=3)], ids=["not told", "refused"])
def test_where_the_driver_does_not_tell_nothing_is_known(driver: Driver) -> None:
    assert nvml(driver).held_bytes() is None


def test_a_driver_that_lists_this_process_tells_whose_memory_it_is(on: Callable[[Driver], Machine]) -> None:
    assert on(Driver([MIB])).tells_whose()


def test_memory_that_others_give_back_meanwhile_hides_it_once_at_most(on: Callable[[Driver], Machine]) -> None:
    driver = Driver([400 * MIB])
    whole, looks = driver.nvmlDeviceGetComputeRunningProcesses_v3, iter(range(9))

    def ending(*arguments: Any) -> int:
        if next(looks) == 1:
            driver.others.clear()
        return whole(*arguments)

    driver.nvmlDeviceGetComputeRunningProcesses_v3 = ending  # type: ignore[method-assign]
    assert on(driver).tells_whose()


def test_a_card_without_room_tells_nothing(on: Callable[[Driver], Machine]) -> None:
    full = on(Driver([]))

    def empty(*_: Any, **__: Any) -> object:
        raise MemoryError

    machine.torch.empty = empty
    assert not full.tells_whose()


def test_one_that_lists_others_only_or_nobody_does_not(on: Callable[[Driver], Machine]) -> None:
    for others in ([], [MIB], [UNKNOWN]):
        driver = Driver(others)
        driver.lists_own = False
        assert not on(driver).tells_whose()


def test_on_a_cpu_nobody_tells() -> None:
    cpu = Machine(cuda=False)
    assert cpu.held_bytes() is None
    assert not cpu.tells_whose()
