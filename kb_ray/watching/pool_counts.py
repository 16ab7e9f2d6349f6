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
