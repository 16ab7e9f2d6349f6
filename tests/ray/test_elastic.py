"""A pool that follows its queue on a real local Ray: it grows, drains, shrinks and loses no verdict."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kb_ray.bench.pool import BenchPool
from kb_ray.records import Status, Verdict
from tests.processes import alive, descendants
from tests.ray.pool_pieces import addition, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _evaluate(pool: BenchPool, names: str, programs: int = 4) -> list[Verdict]:
    return list(await asyncio.gather(*(pool.evaluate(addition(f"add_{name}", programs=programs)) for name in names)))


async def _both_ready(pool: BenchPool, names: str, others: asyncio.Task[list[Verdict]]) -> bool:
    """Whether two workers get ready while there is enough to do for two of them, which there is until `others` are
    done too: else one might leave while the last of those takes its time."""
    ready = asyncio.create_task(until(lambda: pool.stats.ready == 2, 120))

    async def keep_busy(name: str) -> None:
        while not (ready.done() and others.done()):
            await _evaluate(pool, name, programs=50)

    await asyncio.gather(*map(keep_busy, names))
    return await ready


async def test_a_pool_grows_from_nothing_with_its_queue_and_goes_back_to_nothing(ray_cluster: Any) -> None:
    pool = BenchPool((0, 2), 1, "cpu", "elastic-test", idle_s=1.0, backoff_s=0.2)
    try:
        await pool.start()
        assert (pool.stats.workers, pool.lost) == (0, None)
        burst = asyncio.create_task(_evaluate(pool, "abcdef", programs=500))
        assert await until(lambda: pool.stats.ready == 2, 120)
        workers = await pool.worker_stats()
        processes = {pid for worker in workers for pid in (worker.pid, *descendants(worker.pid))}
        assert [verdict.status for verdict in await burst] == [Status.OK] * 6
        assert await until(lambda: pool.stats.workers == 0, 30)
        assert await until(lambda: not any(map(alive, processes)))
        assert pool.lost is None
        [late] = await _evaluate(pool, "g")
        assert late.status is Status.OK
        assert (pool.stats.verdicts, pool.stats.infra_retries, pool.stats.workers) == (7, 0, 1)
    finally:
        await pool.close()


async def test_a_worker_that_starts_holds_up_nobody_and_one_that_leaves_finishes_its_work(ray_cluster: Any) -> None:
    pool = BenchPool((1, 2), 2, "cpu", "drain-test", idle_s=2.0, backoff_s=0.2)
    try:
        await pool.start()
        first = asyncio.create_task(_evaluate(pool, "abc", programs=500))
        assert await until(lambda: pool.stats.running > 0, 60)
        assert (pool.stats.workers, pool.stats.ready) == (2, 1), "who is ready is at work, the other one still starts"
        assert await _both_ready(pool, "defg", first)
        last = asyncio.create_task(_evaluate(pool, "hi", programs=3000))
        assert await until(lambda: pool.stats.leaving == 1, 60)
        assert pool.stats.running == 2, "it leaves with work in hand"
        [meanwhile] = await _evaluate(pool, "j")
        assert meanwhile.status is Status.OK
        assert [verdict.status for verdict in await last] == [Status.OK] * 2
        assert await until(lambda: pool.stats.workers == 1, 30)
        assert pool.stats.infra_retries == 0
    finally:
        await pool.close()
