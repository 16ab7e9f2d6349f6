"""A head that is gone is told once; one that is away for a moment is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kb_ray import head_watch


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_watch, "LOOK_S", 0.02)
    monkeypatch.setattr(head_watch, "GONE_S", 1.0)


async def listening(port: int = 0) -> asyncio.Server:
    return await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def test_a_head_that_is_gone_is_told_once() -> None:
    told = asyncio.Queue[str]()
    server = await listening()
    address = f"127.0.0.1:{port_of(server)}"
    async with head_watch.watching(address, told.put_nowait):
        await asyncio.sleep(0.2)
        assert told.empty()
        server.close()
        line = await asyncio.wait_for(told.get(), 60)
        assert line == f"the Ray cluster at {address} is gone: nothing has answered there for 1 s"
        await asyncio.sleep(0.2)
    assert told.empty()


async def test_a_head_that_comes_back_in_time_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looked = [0.0], list[bool]()
    there = iter([False, False, True, False, False, True, False, False, False, False])

    async def answers(address: str) -> bool:
        clock[0] += 0.4
        looked.append(next(there))
        return looked[-1]

    monkeypatch.setattr(head_watch, "_answers", answers)
    monkeypatch.setattr(head_watch, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    await head_watch._until_gone("anywhere:1")
    assert looked == [False, False, True, False, False, True, False, False, False]
