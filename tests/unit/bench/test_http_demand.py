"""What waits before the HTTP service, and how many workers its pool asks for: a real pool, whose workers never come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from kb_ray.bench import crew, pool
from kb_ray.bench.access import Access
from kb_ray.bench.placement import Placement
from kb_ray.bench.pool import BenchPool
from kb_ray.bench.service import Service, make_app
from tests.unit.bench.http_pieces import arguments

PLACES = 12
MOST = 8
NODES_BOOT_S = 3600


class Booting:
    """A worker whose node does not come."""

    site, quarantine, reason, failures, out = None, "", "", 0, False

    def __init__(self, number: int, *_: Any) -> None:
        self.number, self.name = number, f"w{number}"

    async def ready(self, timeout_s: float) -> bool:
        await asyncio.sleep(NODES_BOOT_S)
        return False

    async def end(self) -> None: ...


async def settles(condition: Callable[[], bool]) -> bool:
    """Whether it becomes so; time does not matter, only what is done meanwhile."""
    with suppress(TimeoutError):
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)
    return condition()


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BenchPool]:
    placement = Placement(low=0, workers=MOST, num_gpus=0, num_cpus=1, labels={"kb-pool": "bench"})
    monkeypatch.setattr(pool, "Worker", Booting)
    monkeypatch.setattr(pool, "place", lambda *_, **__: placement)
    monkeypatch.setattr(crew, "_LOOK_EVERY_S", 0.01)
    for name in ("nodes", "cluster_resources", "available_resources"):
        monkeypatch.setattr(pool.ray, name, dict)
    bench = BenchPool((0, MOST), PLACES, "cuda", "t", idle_s=0.01)
    await bench.start()
    yield bench
    await bench.close()


@asynccontextmanager
async def asked(bench: BenchPool, counts: dict[str, int]) -> AsyncIterator[Service]:
    """A service whose clients wait for a batch of so many each."""
    service = Service(bench, "cuda", ahead=PLACES)
    transport = httpx.ASGITransport(make_app(service, Access({})), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://s", timeout=None) as http:
        bodies = [{"client": name, "requests": [arguments()] * count} for name, count in counts.items()]
        batches = [asyncio.create_task(http.post("/evaluate/batch", json=body)) for body in bodies]
        try:
            yield service
        finally:
            for batch in batches:
                batch.cancel()
            await asyncio.gather(*batches, return_exceptions=True)


@pytest.mark.parametrize(("waiting", "wanted"), [(1, 1), (12, 1), (13, 2), (60, 5), (256, MOST)])
async def test_all_that_wait_ask_for_workers_at_once_while_none_is_ready(
    bench: BenchPool, waiting: int, wanted: int
) -> None:
    async with asked(bench, {"a": waiting}):
        assert await settles(lambda: bench.stats.workers >= wanted)
        await asyncio.sleep(0.1)
        assert (bench.stats.workers, bench.stats.ready) == (wanted, 0)
    assert await settles(lambda: not bench.stats.workers)


async def test_the_pool_is_given_no_more_for_that_so_that_late_ones_have_their_turn(bench: BenchPool) -> None:
    async with asked(bench, {"a": 200, "b": 10}) as service:
        assert await settles(lambda: bench.stats.workers == MOST and bench.stats.waiting == PLACES)
        assert json.loads(service.health().body)["waiting"] == 210 - PLACES
