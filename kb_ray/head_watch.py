"""Whether the head of the cluster that a run is on still answers.

Without it Ray's client ends the whole process after a minute, with no word of the run's. Knows no Ray: a head that
takes connections is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

LOOK_S, ANSWER_S = 3.0, 3.0
GONE_S = 45.0
"""Less than Ray's own minute by what telling it takes."""


@asynccontextmanager
async def watching(address: str, lost: Callable[[str], None]) -> AsyncIterator[None]:
    """`lost` is called, once, with a line that says so, when nothing has answered at `address` for a while."""

    async def watch() -> None:
        await _until_gone(address)
        lost(f"the Ray cluster at {address} is gone: nothing has answered there for {GONE_S:.0f} s")

    watch_task = asyncio.create_task(watch())
    try:
        yield
    finally:
        watch_task.cancel()
        await asyncio.gather(watch_task, return_exceptions=True)


async def _until_gone(address: str) -> None:
    answered = time.monotonic()
    while time.monotonic() - answered < GONE_S:
        if await _answers(address):
            answered = time.monotonic()
        await asyncio.sleep(LOOK_S)


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
