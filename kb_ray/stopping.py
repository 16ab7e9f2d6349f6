"""How a command ends early: signals, work that a signal interrupts, and a last resort.

Says nothing of what is to be saved before the end: the command does that, in its own order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from kb_ray.drive import Ending


@contextmanager
def stop_on_signals(stop: Callable[[Ending], None]) -> Iterator[asyncio.Event]:
    """SIGINT and SIGTERM call `stop` and set the event; a second Ctrl-C ends the process at once.

    For the running loop's thread. Enter it after Ray was joined: Ray installs a SIGTERM handler of its own.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def received(number: signal.Signals) -> None:
        stop(Ending("signal", f"{number.name} received", exit_code=128 + number, hurried=True))
        stopped.set()
        if number == signal.SIGINT:
            loop.remove_signal_handler(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, received, number)
    try:
        yield stopped
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def unless(stopped: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Awaits `work`; False where `stopped` came first, which cancels it."""
    starting = asyncio.create_task(work)
    signalled = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({starting, signalled}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        return False
    finally:
        # Also where this is cancelled itself: `work` must not go on when the cluster is gone.
        signalled.cancel()
        starting.cancel()
        await asyncio.gather(signalled, starting, return_exceptions=True)


@contextmanager
def exit_after(seconds: float | None, code: int) -> Iterator[None]:
    """Ends the process with `code` if what is inside takes longer than `seconds`; None waits for ever."""
    timer = threading.Timer(seconds or 0.0, os._exit, [code])
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
