"""What is measured by looking every few seconds: queues, work in flight, workers, what was written.

Reads the counters that driver, pool and sink keep anyway, so that none of them has to call anything. Does not know
where the numbers go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from kb_ray.tally import Tally
from kb_ray.watching import catalogue
from kb_ray.watching.catalogue import Metric
from kb_ray.watching.meter import Meter
from kb_ray.watching.pool_counts import PoolCounts, not_ready, utilisation

SAMPLE_EVERY_S = 5.0
"""Half of what Ray takes to send numbers on."""


class QueueCounts(PoolCounts, Protocol):
    """With the pool's own queue."""

    @property
    def waiting(self) -> int: ...


class CountingPool(Protocol):
    """Of `bench.pool.BenchPool`."""

    @property
    def stats(self) -> QueueCounts: ...


class CountingSink(Protocol):
    """Of `traces.sink.TraceSink`."""

    parts: int
    bytes: int

    @property
    def waiting(self) -> int: ...


class Sampler:
    """Looks at the counters of one start of a run. For one event loop."""

    def __init__(self, meter: Meter, tally: Tally, pool: CountingPool, sink: CountingSink) -> None:
        self._meter, self._tally, self._pool, self._sink = meter, tally, pool, sink
        self._told: dict[str, float] = {}

    def sample(self) -> None:
        """Measures everything once. Call it a last time when all is written."""
        tally, stats, sink, meter = self._tally, self._pool.stats, self._sink, self._meter
        meter.set(catalogue.PLANNED, tally.done - tally.to_redo, state="done")
        meter.set(catalogue.PLANNED, tally.total + tally.retries - tally.done, state="open")
        meter.set(catalogue.GENERATING, tally.generating)
        meter.set(catalogue.VERIFYING, stats.running)
        meter.set(catalogue.WAITING, tally.waiting_on_model - tally.generating, queue="model")
        meter.set(catalogue.WAITING, stats.waiting, queue="bench")
        meter.set(catalogue.WAITING, sink.waiting, queue="store")
        meter.set(catalogue.WORKERS, stats.ready, state="ready")
        meter.set(catalogue.WORKERS, not_ready(stats), state="not_ready")
        meter.set(catalogue.UTILISATION, utilisation(stats))
        meter.set(catalogue.QUARANTINED, len(stats.quarantined))
        self._grown(catalogue.INFRA_RETRIES, stats.infra_retries)
        self._grown(catalogue.PARTS, sink.parts)
        self._grown(catalogue.BYTES, sink.bytes)

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Samples at once and then every few seconds while the `with` lasts."""
        task = asyncio.create_task(self._repeat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _repeat(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _grown(self, metric: Metric, total: float) -> None:
        """A counter is told what it grew by since it was last looked at."""
        self._meter.add(metric, total - self._told.get(metric.name, 0))
        self._told[metric.name] = total
