"""The pool on a real local Ray, real judges and zygotes and the Triton interpreter, with real kills."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kb_ray.bench.actor import WorkerStats
from kb_ray.bench.pool import BenchPool
from kb_ray.errors import ConfigError, InfraError
from kb_ray.records import Status
from tests.processes import alive, descendants
from tests.ray.pool_pieces import ABORT, addition, slow_addition, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _busy_worker(pool: BenchPool) -> WorkerStats:
    for _ in range(500):
        for worker in await pool.worker_stats():
            if worker.busy and len(worker.pids) == 3:
                return worker
        await asyncio.sleep(0.02)
    raise AssertionError("no worker took the request")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(ray_cluster: Any) -> AsyncIterator[BenchPool]:
    pool = BenchPool(2, 2, "cpu", "pool-test", backoff_s=0.2)
    await pool.start()
    assert await until(lambda: pool.stats.ready == 2, 120)
    yield pool
    await pool.close()


async def test_an_honest_kernel_is_ok(pool: BenchPool) -> None:
    before = pool.stats.verdicts
    verdict = await pool.evaluate(addition())
    assert verdict.status is Status.OK, verdict.error
    assert pool.stats.verdicts == before + 1


async def test_a_crash_is_that_candidates_verdict_and_no_neighbours(pool: BenchPool) -> None:
    retries = pool.stats.infra_retries
    crash, *honest = await asyncio.gather(
        pool.evaluate(addition("abort", code=ABORT)), *(pool.evaluate(addition(f"n{i}")) for i in range(3))
    )
    assert crash.status is Status.CRASH
    assert [verdict.status for verdict in honest] == [Status.OK] * 3
    assert pool.stats.infra_retries == retries, "a crash of a candidate is not a failure of ours"


async def test_every_one_of_twenty_concurrent_requests_gets_its_own_verdict(pool: BenchPool) -> None:
    async def evaluate(number: int) -> tuple[Status, tuple[str, ...]]:
        added = number if number % 3 else -number - 1
        verdict = await pool.evaluate(addition(f"add_{number}", added=added, wanted=number))
        return verdict.status, verdict.evidence.kernels

    running = asyncio.gather(*(evaluate(number) for number in range(20)))
    await asyncio.sleep(0.05)
    stats = pool.stats
    assert (stats.running, stats.waiting, stats.capacity) == (4, 16, 4)
    for number, (status, kernels) in enumerate(await running):
        assert status is (Status.OK if number % 3 else Status.MISMATCH)
        assert kernels == (f"add_{number}",)
    assert (pool.stats.running, pool.stats.waiting) == (0, 0)


@pytest.mark.parametrize("victim", ["judge", "candidates", "references"])
async def test_a_killed_judge_or_zygote_costs_only_a_retry(pool: BenchPool, victim: str) -> None:
    retries = pool.stats.infra_retries
    running = asyncio.create_task(pool.evaluate(slow_addition()))
    worker = await _busy_worker(pool)
    os.kill(worker.pids[victim], signal.SIGKILL)
    verdict = await running
    assert verdict.status is Status.OK, verdict.error
    assert pool.stats.infra_retries == retries + 1
    assert await until(lambda: not any(map(alive, worker.pids.values())))
    assert await until(lambda: pool.stats.ready == 2, 120), "it comes back with a new judge and zygote"


async def test_a_killed_actor_costs_a_retry_and_leaves_no_process(pool: BenchPool) -> None:
    retries = pool.stats.infra_retries
    running = asyncio.create_task(pool.evaluate(slow_addition()))
    worker = await _busy_worker(pool)
    children = descendants(worker.pid)
    assert set(worker.pids.values()) <= children
    os.kill(worker.pid, signal.SIGKILL)
    verdict = await running
    assert verdict.status is Status.OK, verdict.error
    assert pool.stats.infra_retries == retries + 1
    assert await until(lambda: not any(map(alive, children)))
    assert await until(lambda: pool.stats.ready == 2, 120), "Ray restarts the actor"


async def test_a_worker_that_hangs_is_restarted_and_close_leaves_nothing(ray_cluster: Any) -> None:
    pool = BenchPool(1, 1, "cpu", "hang-test", tries=5, backoff_s=0.2, deadline_s=15)
    await pool.start()
    [worker] = await pool.worker_stats()
    os.kill(worker.pids["judge"], signal.SIGSTOP)
    verdict = await pool.evaluate(addition())
    assert verdict.status is Status.OK, verdict.error
    assert pool.stats.infra_retries >= 1
    [successor] = await pool.worker_stats()
    left = {worker.pid, *worker.pids.values(), successor.pid} | descendants(successor.pid)
    running = [asyncio.create_task(pool.evaluate(slow_addition())) for _ in range(2)]
    await _busy_worker(pool)
    left |= descendants(successor.pid)
    await pool.close()
    for failed in await asyncio.gather(*running, return_exceptions=True):
        assert isinstance(failed, InfraError)
    assert await until(lambda: not any(map(alive, left)))


async def test_giving_up_a_request_keeps_its_place_until_the_worker_is_done(pool: BenchPool) -> None:
    given_up = asyncio.create_task(pool.evaluate(slow_addition()))
    await _busy_worker(pool)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert pool.stats.running == 1
    assert await until(lambda: pool.stats.running == 0, 60)


async def test_a_cluster_that_cannot_hold_a_worker_is_told_apart(ray_cluster: Any) -> None:
    with pytest.raises(ConfigError, match="no GPU"):
        await BenchPool(None, 1, "cuda", "no-gpu").start()
    with pytest.raises(InfraError, match="needs a GPU"):
        await BenchPool(1, 1, "cuda", "no-gpu", ready_timeout_s=1).start()
