"""A device found sick after a candidate's crash: its work moves, it comes back after a passed check, or stays out."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kb_ray.bench.pool import BenchPool
from kb_ray.errors import InfraError
from kb_ray.records import Status
from tests.ray.pool_pieces import ABORT, addition, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_work_of_a_sick_device_moves_and_it_comes_back_after_a_passed_check(ray_cluster: Any) -> None:
    pool = BenchPool(2, 1, "cpu", "sick-test", backoff_s=0.2, faults={0: "once"})
    try:
        await pool.start()
        assert await until(lambda: pool.stats.ready == 2, 120)
        # Each worker has one place, so that worker 0 gets one of two.
        crashes = await asyncio.gather(*(pool.evaluate(addition(f"abort_{i}", code=ABORT)) for i in range(2)))
        assert [verdict.status for verdict in crashes] == [Status.CRASH] * 2, "the candidate is to blame for its end"
        honest = asyncio.gather(*(pool.evaluate(addition(f"add_{i}", added=i, wanted=i)) for i in range(6)))
        assert await until(lambda: len(pool.stats.quarantined) == 1, 30)
        assert "kb-bench-sick-test-0: a fault made for a test" in pool.stats.quarantined
        verdicts = await honest
        assert [verdict.status for verdict in verdicts] == [Status.OK] * 6
        assert await until(lambda: pool.stats.ready == 2, 120)
        assert pool.stats.quarantined == ()
        after = await asyncio.gather(*(pool.evaluate(addition(f"more_{i}")) for i in range(4)))
        assert [verdict.status for verdict in after] == [Status.OK] * 4
    finally:
        await pool.close()


async def test_with_no_device_left_requests_are_told_so_in_one_line(ray_cluster: Any) -> None:
    pool = BenchPool(1, 1, "cpu", "lost-test", backoff_s=0.2, faults={0: "always"})
    try:
        await pool.start()
        assert pool.lost is None
        assert (await pool.evaluate(addition("abort", code=ABORT))).status is Status.CRASH
        waiting = [asyncio.create_task(pool.evaluate(addition(f"n{i}"))) for i in range(3)]
        started = time.monotonic()
        for failed in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(failed, InfraError)
            assert "kb-bench-lost-test-0 stays in quarantine: a fault made for a test" in str(failed)
            assert "\n" not in str(failed)
        assert time.monotonic() - started < 60
        assert (pool.stats.ready, len(pool.stats.quarantined)) == (0, 1)
        assert pool.lost is not None
        with pytest.raises(InfraError, match="stays in quarantine"):
            await pool.evaluate(addition("late"))
    finally:
        await pool.close()
