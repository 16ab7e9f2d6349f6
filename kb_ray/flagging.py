"""Leaves out tasks that the task gate flags: each is looked at once, before its first episode begins.

Asks the pool that also verifies candidates, and remembers what it said by what the task is, so that samples,
second attempts and copies of a task under other names cost nothing. What a flag means is quality.py's
business; whether flagged tasks are wanted is the caller's.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Protocol

from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError
from kb_ray.records import Task, Verdict
from kb_ray.tasks.quality import excluding

_CONTENT = {"reference_code", "style", "entry_point", "init_convention", "input_shapes"}


class Pool(Protocol):
    """What looks at tasks: `bench.pool.BenchPool`."""

    async def evaluate(self, request: BenchRequest) -> Verdict:
        """The task's flags in a verdict's evidence; InfraError where its reference cannot be run."""
        ...


class Flagging:
    """Which tasks of a run are good enough. For one event loop.

    `on_drop` gets one line for each task that is left out, once.
    """

    def __init__(self, pool: Pool, settings: BenchSettings, on_drop: Callable[[str], None]) -> None:
        self._pool, self._settings, self._on_drop = pool, settings, on_drop
        self._asked: dict[str, asyncio.Task[tuple[str, ...]]] = {}
        self._told: set[str] = set()

    @property
    def left_out(self) -> frozenset[str]:
        """Ids of tasks that were not admitted so far."""
        return frozenset(self._told)

    async def admits(self, task: Task) -> bool:
        """Whether the task is to be run: it has no flag that excludes it.

        A task whose reference cannot be run is admitted: its episodes say why, and a later start may do better.
        """
        key = hashlib.sha256(task.model_dump_json(include=_CONTENT).encode()).hexdigest()
        held = excluding(task.flags)
        if not held:
            if key not in self._asked:
                self._asked[key] = asyncio.create_task(self._ask(key, task))
            # Whoever waits may be cancelled; the others still want to know.
            held = await asyncio.shield(self._asked[key])
        if held and task.task_id not in self._told:
            self._told.add(task.task_id)
            self._on_drop(f"{task.task_id}: left out, it is flagged {', '.join(held)}")
        return not held

    async def _ask(self, key: str, task: Task) -> tuple[str, ...]:
        request = BenchRequest(
            request_id=f"inspect-{key[:24]}", task=task, kernel_code="", settings=self._settings, inspect=True
        )
        try:
            verdict = await self._pool.evaluate(request)
        except InfraError:
            return ()
        return excluding(verdict.evidence.flags)
