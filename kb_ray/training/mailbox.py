"""What passes between a run and the processes that learn for it: one call at a time, and every process's answer.

An actor's code, without Ray in it: processes ask for the next call and wait, the run asks for the answers and waits.
Knows nothing of what is called.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple


class Call(NamedTuple):
    """What all processes are to do."""

    number: int
    """From 1, in order."""
    name: str
    arguments: tuple[Any, ...]


class Mailbox:
    """Holds the newest call and the answers to it."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._call = Call(0, "", ())
        self._answers: dict[int, Any] = {}
        self._changed = asyncio.Condition()

    async def ask(self, name: str, arguments: tuple[Any, ...]) -> list[Any]:
        """The answers of all processes to this call, by rank; a failure is an exception among them."""
        async with self._changed:
            self._call, self._answers = Call(self._call.number + 1, name, arguments), {}
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(self._answers) == self._processes)
            return [self._answers[rank] for rank in range(self._processes)]

    async def after(self, number: int) -> Call:
        """The call that follows this one, once there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._call.number > number)
            return self._call

    async def answer(self, number: int, rank: int, outcome: Any) -> None:
        """What a process made of a call."""
        async with self._changed:
            if number == self._call.number:
                self._answers[rank] = outcome
                self._changed.notify_all()
