"""The workers of a pool as they come and go: asked for, warmed up, revived, drained and ended.

A worker that is not ready gets no request, and one that leaves finishes what it has. How many there should be is
`scaling`'s to say, who gets what is `dispatch`'s. Does not know requests, retries or callers.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from kb_ray.bench.dispatch import Dispatch
from kb_ray.bench.scaling import Member, Scaling
from kb_ray.bench.site import Site, compare
from kb_ray.bench.worker import Worker
from kb_ray.errors import InfraError

_HOPELESS_AFTER = 3
"""Failed starts of every worker after which nobody is left waiting for them."""
_LONGEST_BACKOFF_S = 30.0
_LOOK_EVERY_S = 1.0
"""How often it is looked whether somebody may leave; who is missing is asked for at once."""


class Crew:
    """Workers by number. `hire` makes the worker of a number; `changed` is called when somebody got ready or failed.

    `need`: what one worker needs, in words. `ready_timeout_s`: seconds without any ready worker, while some are
    wanted, after which there is no hope. `backoff_s`: wait after a failed start, doubled with each. `warn` gets one
    line about whatever is no failure and yet worth knowing. `held_back`: requests that will come once there is room.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        scaling: Scaling,
        hire: Callable[[int], Worker],
        changed: Callable[[], None],
        *,
        need: str,
        ready_timeout_s: float,
        backoff_s: float,
        warn: Callable[[str], None],
        held_back: Callable[[], int] = lambda: 0,
    ) -> None:
        self.workers: dict[int, Worker] = {}
        self._dispatch, self._scaling, self._hire, self._changed = dispatch, scaling, hire, changed
        self._need, self._ready_timeout_s, self._backoff_s, self._warn = need, ready_timeout_s, backoff_s, warn
        self._held_back = held_back
        self._numbers = itertools.count()
        self._reviving: dict[Worker, asyncio.Task[None]] = {}
        self._leaving: set[int] = set()
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._first_site: Site | None = None
        self._last_ready = time.monotonic()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def open(self) -> None:
        """Asks for the workers that there are always."""
        self.steer()
        if self._scaling.bounds.low < self._scaling.bounds.high:
            self._looking = asyncio.create_task(self._look())

    def steer(self) -> None:
        """Asks for workers that are missing, lets go of those that are not needed. To be called when demand changes."""
        if self._closed:
            return
        for number in self._leaving - self._ending.keys():
            if not self._dispatch.busy(number):
                self._let_end(number)
        if not self.workers:
            self._last_ready = time.monotonic()
        bounds = self._scaling.bounds
        if bounds.low == bounds.high == len(self.workers) and not self._leaving:
            # Nobody may come or go, and this is asked with every request.
            return
        waiting = self._dispatch.waiting + self._held_back()
        step = self._scaling.step(waiting, self._members(), time.monotonic())
        for number in step.recall:
            self._leaving.discard(number)
            self.revive(self.workers[number])
        for number in itertools.islice(self._numbers, step.add):
            self.workers[number] = self._hire(number)
            self._dispatch.add_worker(number)
            self.revive(self.workers[number])
        for number in step.leave:
            self._leave(number)

    def revive(self, worker: Worker) -> None:
        """Gives the worker nothing more until it says that it is ready."""
        if worker.number in self._ending:
            return
        if self._dispatch.ready_workers:
            self._last_ready = time.monotonic()
        self._dispatch.set_ready(worker.number, False)
        idle = worker not in self._reviving and worker.number not in self._leaving
        if idle and not self._closed and not worker.out:
            self._reviving[worker] = asyncio.create_task(self._until_ready(worker))

    def ready(self) -> list[Worker]:
        """Workers that are not coming up, nor leaving."""
        return [w for w in self.workers.values() if w not in self._reviving and w.number not in self._leaving]

    @property
    def leaving(self) -> int:
        """Workers that get nothing new."""
        return len(self._leaving)

    async def close(self) -> None:
        """Ends all workers with their processes."""
        self._closed = True
        for task in (*self._reviving.values(), *([self._looking] if self._looking else [])):
            task.cancel()
        # A worker that is being replaced is left half-way otherwise.
        await asyncio.gather(*self._reviving.values(), *self._ending.values(), return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self.workers.values()))

    def hopeless(self) -> InfraError | None:
        """Why no worker will come any more; None while there is hope."""
        if self._closed or (self._looking is None and not self.workers):
            return InfraError("the bench pool is not open")
        if self._dispatch.ready_workers or not self.workers:
            return None
        given_up = all(worker.out or worker.failures >= _HOPELESS_AFTER for worker in self.workers.values())
        if not given_up and time.monotonic() - self._last_ready <= self._ready_timeout_s:
            return None
        reasons = dict.fromkeys(worker.reason for worker in self.workers.values() if worker.reason)
        return InfraError(
            "; ".join(reasons)
            or f"no bench worker was ready for {self._ready_timeout_s:.0f} s: each of {len(self.workers)} "
            f"needs {self._need}; `ray status` shows who holds what"
        )

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self.steer()

    def _members(self) -> list[Member]:
        return [
            Member(
                number,
                busy=0 if number in self._ending else self._dispatch.busy(number),
                ready=worker not in self._reviving,
                leaving=number in self._leaving,
                out=worker.out,
            )
            for number, worker in self.workers.items()
        ]

    def _leave(self, number: int) -> None:
        self._leaving.add(number)
        self._dispatch.set_ready(number, False)
        if not self._dispatch.busy(number):
            self._let_end(number)

    def _let_end(self, number: int) -> None:
        worker = self.workers[number]
        self._dispatch.remove_worker(number)
        if reviving := self._reviving.pop(worker, None):
            reviving.cancel()
        self._ending[number] = asyncio.create_task(self._end(worker, reviving))

    async def _end(self, worker: Worker, reviving: asyncio.Task[None] | None) -> None:
        if reviving is not None:
            await asyncio.gather(reviving, return_exceptions=True)
        try:
            await worker.end()
        finally:
            del self.workers[worker.number], self._ending[worker.number]
            self._leaving.discard(worker.number)
            self.steer()

    async def _until_ready(self, worker: Worker) -> None:
        while not await worker.ready(self._ready_timeout_s):
            self._changed()
            if worker.out:
                del self._reviving[worker]
                return
            await asyncio.sleep(min(_LONGEST_BACKOFF_S, self._backoff_s * 2**worker.failures))
        self._check_site(worker)
        del self._reviving[worker]
        if not worker.out:
            self._dispatch.set_ready(worker.number, worker.number not in self._leaving)
        self._changed()

    def _check_site(self, worker: Worker) -> None:
        """Verdicts of one run must be comparable: a worker with other versions than the first takes no part.

        It goes on holding its place, so that no other worker is put there only to be refused too.
        """
        site = worker.site
        if site is None:
            return
        self._first_site = self._first_site or site
        stops, warns = compare([self._first_site, site])
        for line in warns:
            self._warn(line)
        if stops:
            worker.out, worker.reason = True, f"{worker.name} takes no part: {stops[0]}"
            self._warn(worker.reason)


def once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """`tell` that leaves out what it was told before."""
    told: set[str] = set()

    def tell_new(line: str) -> None:
        if line not in told:
            told.add(line)
            tell(line)

    return tell_new
