"""What the evaluations of one device share: the card's time, its memory, and the right to start on it.

Owns the rules of sharing; does not know what is evaluated.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kb_ray.bench.child.exclusive import Slot
from kb_ray.bench.child.machine import Machine

PROCESS_BYTES = 1 << 30
"""GPU memory of a candidate before it has any data: its context, and what is written to flush the L2 cache."""
CASES_HELD = 6
"""Copies of one case's inputs and outputs that are about at the fullest moment of an evaluation."""
STARTING = 3
"""Processes that create their CUDA context at once: the driver does one after the other, and more only wait."""


class Budget:
    """Bytes of the card that evaluations have reserved. None: nothing is counted."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self._used = 0
        self._condition = threading.Condition()
        self._queue: deque[object] = deque()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Wait until `size` bytes are free, first come, first served, or the largest would wait for ever.

        Whoever needs more than there is gets all, by itself.
        """
        if self.total is None:
            yield
            return
        size, total, place = min(size, self.total), self.total, object()
        with self._condition:
            self._queue.append(place)
            self._condition.wait_for(lambda: self._queue[0] is place and self._used + size <= total)
            self._queue.popleft()
            self._used += size
            self._condition.notify_all()
        try:
            yield
        finally:
            with self._condition:
                self._used -= size
                self._condition.notify_all()


class Card:
    """One device under evaluation. `memory`: bytes of it that may be used; None on a CPU."""

    def __init__(self, machine: Machine, cuda: bool, memory: int | None = None) -> None:
        self.machine, self.cuda = machine, cuda
        self.slot = Slot()
        self.budget = Budget(memory)
        self.starting = threading.BoundedSemaphore(STARTING)
        self.making = ThreadPoolExecutor(STARTING, "ahead")
        """Threads for cases that are made ahead; kept, since each thread that has used CUDA costs memory."""

    def everything(self) -> int:
        """Bytes of all that there is: while they are reserved no other evaluation is on the device."""
        return self.budget.total or 0

    def room(self, case_bytes: int | None, one_more: bool = False) -> int:
        """Bytes that an evaluation with cases of this size takes; `one_more`: a case is made ahead."""
        return PROCESS_BYTES + (CASES_HELD + one_more) * (case_bytes or 0)

    def fits_one_more(self, case_bytes: int | None) -> bool:
        """Whether the device has memory for an evaluation that makes a case ahead."""
        return self.budget.total is not None and self.room(case_bytes, one_more=True) <= self.budget.total
