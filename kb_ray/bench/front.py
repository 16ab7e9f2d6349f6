"""The pool behind `.remote(...)` and whoever else evaluates on Ray from plain functions: one actor for each job.

Does not know arguments and problems; a request comes as it is, and goes back as a verdict or as its mapping.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import ray
from ray.exceptions import RayError

from kb_ray.bench.actor import Device, one_line
from kb_ray.bench.api import CONCURRENCY, answer, infra_verdict
from kb_ray.bench.pool import BenchPool
from kb_ray.bench.protocol import BenchRequest
from kb_ray.errors import InfraError, ReferenceFault
from kb_ray.records import Verdict

_FRONT = "kb-bench-front"

_lock = threading.Lock()
fronts: dict[str, Any] = {}
"""By connection to Ray, and held while it lasts: Ray ends an actor that nobody holds."""


class BenchFront:
    """Ray actor that owns a BenchPool and answers in mappings; it ends with the job that made it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pool: asyncio.Task[BenchPool] | None = None

    async def answer(self, request_json: str) -> dict[str, Any]:
        """`BenchRequest` as JSON to the mapping of its verdict."""
        return answer(Verdict.model_validate_json(await self.verdict(request_json)))

    async def verdict(self, request_json: str) -> str:
        """`BenchRequest` as JSON to its Verdict as JSON; the device is the pool's, whatever the request says."""
        request = BenchRequest.model_validate_json(request_json)
        settings = request.settings.model_copy(update={"device": self._device})
        try:
            pool = await self._started_pool()
            verdict = await pool.evaluate(request.model_copy(update={"settings": settings}))
        except InfraError as error:
            verdict = infra_verdict(str(error), reference=isinstance(error, ReferenceFault))
        return verdict.model_dump_json()

    async def answer_batch(self, requests_json: list[str]) -> list[dict[str, Any]]:
        """The same for many, in their order."""
        return list(await asyncio.gather(*(self.answer(request) for request in requests_json)))

    async def _started_pool(self) -> BenchPool:
        failed = self._pool is not None and self._pool.done() and self._pool.exception() is not None
        if self._pool is None or failed:
            self._pool = asyncio.create_task(_start_pool(self._device))
        return await asyncio.shield(self._pool)


async def _start_pool(device: Device) -> BenchPool:
    pool = BenchPool(None, CONCURRENCY, device, "api")
    await pool.start()
    return pool


def front() -> Any:
    """The actor of this process's job; Ray is started where it is not. Thread-safe."""
    with _lock:
        if not ray.is_initialized():
            ray.init()
        connection = ray.get_runtime_context().get_worker_id()
        # One handle: of two only the first holds the actor, and threads that make one each would lose it.
        if connection not in fronts:
            device: Device = "cuda" if ray.cluster_resources().get("GPU", 0) >= 1 else "cpu"
            options = {"name": _FRONT, "get_if_exists": True, "num_cpus": 0, "max_restarts": -1}
            fronts[connection] = ray.remote(BenchFront).options(**options, max_task_retries=2).remote(device)
        return fronts[connection]


def ask(request: BenchRequest) -> Verdict:
    """The verdict; `infra_error` where Ray itself fails. Blocks; thread-safe."""
    try:
        return Verdict.model_validate_json(ray.get(front().verdict.remote(request.model_dump_json())))
    except RayError as error:
        return infra_verdict(one_line(error))
