"""A head that is gone is told once; one that is away for a moment is not, nor one that is not looked at for long."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kb_ray import head_watch

ROOT = Path(__file__).resolve().parents[2]
WATCHER = """
import asyncio, sys
from kb_ray import head_watch
head_watch.LOOK_S = float(sys.argv[2])

async def watch():
    async with head_watch.watching(sys.argv[1], print):
        await asyncio.to_thread(sys.stdin.read)
    print("over")

asyncio.run(watch())
"""


class Head:
    """Takes connections, and counts them."""

    def __init__(self) -> None:
        self.looks = 0
        self._more = asyncio.Event()

    async def __aenter__(self) -> Head:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        self.looks += 1
        self._more.set()

    async def looked_at(self, times: int) -> None:
        """Returns when so many further looks have come."""
        until = self.looks + times
        while self.looks < until:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)


async def test_a_head_that_is_gone_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_watch, "LOOK_S", 0.02)
    told = asyncio.Queue[str]()
    async with Head() as head:
        async with head_watch.watching(head.address, told.put_nowait):
            await head.looked_at(2 * head_watch.LOOKS)
            assert told.empty()
            head._server.close()
            line = await asyncio.wait_for(told.get(), 60)
            assert line == f"the Ray cluster at {head.address} is gone: nothing has answered there for 0 s"
            await asyncio.sleep(0.2)
        assert told.empty()


def test_what_is_told_of_the_time_is_less_than_rays_own_minute() -> None:
    assert 30 <= head_watch.LOOKS * head_watch.LOOK_S <= 50


def test_a_head_that_comes_back_in_time_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_watch, "LOOK_S", 0.0)
    looked = list[bool]()
    away = [False] * (head_watch.LOOKS - 1)
    there = iter([*away, True, *away, True, *away, False, False])

    def answers(address: str) -> bool:
        looked.append(next(there))
        return looked[-1]

    monkeypatch.setattr(head_watch, "_answers", answers)
    assert head_watch._is_gone("anywhere:1", threading.Event())
    assert looked == [*away, True, *away, True, *away, False]


def test_time_that_passes_without_a_look_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a machine sleeps: the clock jumps, and the look that was under way meanwhile got no answer."""
    clock, over, there = [0.0], threading.Event(), iter([True, False, True, False, True])

    def answers(address: str) -> bool:
        clock[0] += 3600
        if answer := next(there, None):
            return answer
        if answer is None:
            over.set()
        return False

    monkeypatch.setattr(head_watch, "LOOK_S", 0.0)
    monkeypatch.setattr(head_watch, "_answers", answers)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert not head_watch._is_gone("anywhere:1", over)


@pytest.mark.skipif(sys.platform != "linux", reason="a process is stopped by a signal")
async def test_one_that_was_stopped_for_long_goes_on() -> None:
    async with Head() as head:
        arguments = [sys.executable, "-c", WATCHER, head.address, "0.02"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        watcher = subprocess.Popen(arguments, env=environment, text=True, **pipes)
        try:
            await head.looked_at(2)
            for _ in range(2):
                watcher.send_signal(signal.SIGSTOP)
                await asyncio.sleep(3 * head_watch.LOOKS * 0.02)
                watcher.send_signal(signal.SIGCONT)
                await head.looked_at(2 * head_watch.LOOKS)
            said, _ = await asyncio.to_thread(watcher.communicate, "", 60)
        finally:
            watcher.kill()
            watcher.wait()
    assert said == "over\n"


async def test_a_loop_that_was_held_up_for_long_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_watch, "LOOK_S", 0.02)
    told = list[str]()
    async with Head() as head, head_watch.watching(head.address, told.append):
        await head.looked_at(2)
        time.sleep(3 * head_watch.LOOKS * 0.02)
        await head.looked_at(2 * head_watch.LOOKS)
        assert told == []
