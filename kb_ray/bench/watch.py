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

from kb_ray.bench.neighbours import LOOK_EVERY_S, Neighbours, held_by_node
from kb_ray.bench.worker import Worker


async def watch(workers: Callable[[], Collection[Worker]], neighbours: Neighbours, warn: Callable[[str], None]) -> None:
    """Keeps `neighbours` informed. `workers`: those of the pool now, starting ones too. `warn`: a line each."""
    while True:
        answers = await asyncio.gather(*(worker.gpu_use() for worker in workers()))
        uses = [answer for answer in answers if answer is not None]
        if uses:
            try:
                held = await asyncio.to_thread(held_gpus)
            except RayError:
                held = {}
            for line in neighbours.look(uses, held, time.monotonic()):
                warn(line)
        await asyncio.sleep(LOOK_EVERY_S)


def held_gpus() -> dict[str, float]:
    """GPUs that Ray has given away, to whomever, by node."""
    # Ray has no public call for what each node has free.
    return held_by_node(ray.nodes(), available_resources_per_node())
