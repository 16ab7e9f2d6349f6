"""What runs and the service over HTTP both tell of a pool. Imports nothing of what counts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class PoolCounts(Protocol):
    """Of `bench.pool.PoolStats`."""

    @property
    def running(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def ready(self) -> int: ...
    @property
    def infra_retries(self) -> int: ...
    @property
    def quarantined(self) -> Sequence[str]: ...


def not_ready(pool: PoolCounts) -> int:
    """Its workers that serve nobody yet, or not at present."""
    return pool.workers - pool.ready


def utilisation(pool: PoolCounts) -> float:
    """Share of its places that are taken. A worker that leaves while it is at it still has its places taken."""
    return min(1.0, pool.running / pool.capacity) if pool.capacity else 0.0
