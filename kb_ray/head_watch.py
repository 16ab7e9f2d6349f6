"""Whether the head of the cluster that a run is on still answers.

Without it Ray's client ends the whole process after a minute, with no word of the run's. Knows no Ray: a head that
takes connections is there.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

LOOK_S, ANSWER_S = 3.0, 3.0
"""From one look to the next, and how long one waits: no longer, so that looks come at the same pace without answers."""
LOOKS = 15
"""So many in a row without an answer: less than Ray's own minute by what telling it takes. Looks are counted and not
time: none is made while this process, or its machine, is stopped."""


@asynccontextmanager
async def watching(address: str, lost: Callable[[str], None]) -> AsyncIterator[None]:
    """`lost` is called in this loop, once, with a line that says so, when nothing has answered at `address` for a
    while."""
    loop, over = asyncio.get_running_loop(), threading.Event()

    def tell() -> None:
        if not over.is_set():
            lost(f"the Ray cluster at {address} is gone: nothing has answered there for {LOOKS * LOOK_S:.0f} s")

    def watch() -> None:
        if _is_gone(address, over):
            # The loop may have ended meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

    # In a thread: a loop that is held up would take an answer that waits for none.
    threading.Thread(target=watch, name="head", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _is_gone(address: str, over: threading.Event) -> bool:
    """Returns when enough looks in a row got no answer; False where it is `over` before."""
    failed = 0
    while failed < LOOKS:
        began = time.monotonic()
        failed = 0 if _answers(address) else failed + 1
        if over.wait(max(0.0, began + LOOK_S - time.monotonic())):
            return False
    return True


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except OSError:
        return False
    return True
