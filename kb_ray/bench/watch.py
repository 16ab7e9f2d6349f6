"""Looks every few seconds who else uses GPUs of a pool's nodes, from Ray's accounts and from the drivers.

What follows from it is `neighbours`' to say. Runs until it is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import RayError

from kb_ray.bench.neighbours import Neighbours, held_by_node
from kb_ray.bench.worker import Worker
from kb_ray.records import Verdict

LOOK_EVERY_S = 10.0


class Watch:
    """`workers`: those of the pool now, starting ones too. `warn`: gets a line for each shared node."""

    def __init__(self, workers: Callable[[], Collection[Worker]], warn: Callable[[str], None]) -> None:
        self._workers, self._warn = workers, warn
        self._neighbours, self._looking = Neighbours(), asyncio.Lock()

    async def run(self) -> None:
        """Looks again and again."""
        while True:
            async with self._looking:
                await self._look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def marked(self, verdict: Verdict, node: str | None, began: float) -> Verdict:
        """The verdict, marked where others were seen on its node; of a new node that waits for the first look."""
        if verdict.timed and node is not None and not self._neighbours.knows(node):
            async with self._looking:
                if not self._neighbours.knows(node):
                    await self._look()
        return self._neighbours.mark(verdict, node, began)

    async def _look(self) -> None:
        answers = await asyncio.gather(*(worker.gpu_use() for worker in self._workers()))
        uses = [answer for answer in answers if answer is not None]
        if uses:
            try:
                held = await asyncio.to_thread(held_gpus)
            except RayError:
                held = {}
            for line in self._neighbours.look(uses, held, time.monotonic()):
                self._warn(line)


def held_gpus() -> dict[str, float]:
    """GPUs that Ray has given away, to whomever, by node."""
    # Ray has no public call for what each node has free.
    return held_by_node(ray.nodes(), available_resources_per_node())
