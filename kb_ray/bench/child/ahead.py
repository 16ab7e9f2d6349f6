"""The next case of a large task, made while the candidate is at work on the one before.

Small tasks keep their cases, so only large ones wait for the reference. Knows no rule of sharing a card: what it is
given to run takes its own turn.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from types import TracebackType

from kb_ray.bench.child.cases import Case


class Ahead:
    """Cases under way in threads of `pool`; without one nothing is made ahead.

    On leaving it, whatever is still under way is waited for: its memory belongs to this evaluation.
    """

    def __init__(self, pool: Executor | None = None) -> None:
        self._pool = pool
        self._coming: dict[int, Future[Case]] = {}

    def begin(self, index: int, make: Callable[[], Case]) -> None:
        """Have case `index` made."""
        if self._pool is not None:
            self._coming[index] = self._pool.submit(make)

    def take(self, index: int) -> Case | None:
        """Case `index`, waited for, or its exception; None where it was not begun."""
        coming = self._coming.pop(index, None)
        return coming.result() if coming is not None else None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        coming, self._coming = self._coming, {}
        wait([case for case in coming.values() if not case.cancel()])
