"""The pool of bench workers: a request goes to the least busy one, and to another one if that breaks.

Only infrastructure failures are retried; a verdict is returned as it came. Does not know how a verdict is
reached, what an episode is, or what happens to the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from contextlib import suppress

import ray

from kb_ray.bench.actor import Device, Reply, WorkerStats
from kb_ray.bench.dispatch import Dispatch, Ticket
from kb_ray.bench.host import Fault
from kb_ray.bench.placement import place
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.worker import Worker
from kb_ray.errors import InfraError
from kb_ray.records import Record, Verdict

_HOPELESS_AFTER = 3
"""Failed starts of every worker after which nobody is left waiting for them."""
_PHASES = 8
"""More than the phases of any evaluation, reference and repetition included."""
_LONGEST_BACKOFF_S = 30.0


class PoolStats(Record):
    """The pool now, and what it did so far."""

    waiting: int
    """Requests without a place: what the driver should look at for back-pressure."""
    running: int
    verdicts: int
    infra_retries: int
    """Tries that were repeated because our side failed."""
    capacity: int
    """Requests that the ready workers take at once."""
    workers: int
    ready: int
    quarantined: tuple[str, ...] = ()
    """One line for each worker whose device is not trusted now."""


class BenchPool:
    """Ray actors that verify candidates, each `concurrency` at once. For one event loop.

    `workers`: how many; None or 0 takes one per GPU, or one on CPUs. `device`: "cuda" or "cpu". `run_id`
    goes into the actors' names. `ready_timeout_s`: seconds without any ready worker before requests fail.
    `tries`: tries of one request, the last with a worker to itself. `backoff_s`: wait before the second
    try, doubled after. `deadline_s`: seconds for one try, None derives it from the request's timeouts. `faults`,
    for tests: by worker number, see Evaluator.
    """

    def __init__(
        self,
        workers: int | None,
        concurrency: int,
        device: Device,
        run_id: str,
        *,
        ready_timeout_s: float = 600.0,
        tries: int = 3,
        backoff_s: float = 1.0,
        deadline_s: float | None = None,
        faults: Mapping[int, Fault] | None = None,
    ) -> None:
        self._wanted = workers
        self._concurrency = concurrency
        self._device = device
        self._run_id = run_id
        self._ready_timeout_s = ready_timeout_s
        self._tries = tries
        self._backoff_s = backoff_s
        self._deadline_s = deadline_s
        self._faults = faults or {}
        self._workers: list[Worker] = []
        self._reviving: dict[Worker, asyncio.Task[None]] = {}
        self._dispatch = Dispatch(concurrency)
        self._granted: dict[Ticket, asyncio.Future[Worker]] = {}
        self._asks: set[asyncio.Task[Reply]] = set()
        self._orders = itertools.count()
        self._changed = asyncio.Event()
        self._last_ready = time.monotonic()
        self._verdicts = 0
        self._infra_retries = 0
        self._need = ""
        self._closed = False

    async def start(self) -> None:
        """Creates the workers and returns when one is ready; the others warm up meanwhile.

        Raises ConfigError where the cluster has no GPU for them, InfraError where none gets ready.
        """
        placement = place(self._device, self._wanted, ray.nodes(), ray.cluster_resources(), ray.available_resources())
        self._need = placement.need
        self._last_ready = time.monotonic()
        for number in range(placement.workers):
            fault = self._faults.get(number)
            self._workers.append(Worker(number, self._run_id, self._device, self._concurrency, placement, fault))
            self._dispatch.add_worker(number)
            self._revive(self._workers[number])
        try:
            while not self._dispatch.ready_workers:
                self._raise_if_hopeless()
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), self._ready_timeout_s)
        except BaseException:
            await self.close()
            raise

    async def evaluate(self, request: BenchRequest) -> Verdict:
        """The verdict on one candidate. InfraError, with the history, when every try failed on our side."""
        order = next(self._orders)
        failed: list[Reply] = []
        avoid: frozenset[int] = frozenset()
        while len(failed) < self._tries:
            if failed:
                await asyncio.sleep(self._backoff_s * 2 ** (len(failed) - 1))
            alone = len(failed) > 0 and len(failed) == self._tries - 1
            worker, reply = await self._try(Ticket(order, avoid, alone), request)
            if reply.verdict is not None:
                self._verdicts += 1
                return reply.verdict
            avoid |= {worker.number}
            # In quarantine it was not tried at all, and the worker is out of the way now.
            failed += [reply] if reply.quarantine is None else []
            if sum(reply.blames_reference for reply in failed) == 2:
                break
            self._infra_retries += len(failed) < self._tries
        tried = "; ".join(str(reply.infra) for reply in failed)
        raise InfraError(f"no verdict for {request.task.task_id} in {len(failed)} tries: {tried}")

    @property
    def stats(self) -> PoolStats:
        """Counts now; costs nothing."""
        ready = self._dispatch.ready_workers
        return PoolStats(
            waiting=self._dispatch.waiting,
            running=self._dispatch.running,
            verdicts=self._verdicts,
            infra_retries=self._infra_retries,
            capacity=ready * self._concurrency,
            workers=len(self._workers),
            ready=ready,
            quarantined=tuple(f"{worker.name}: {worker.quarantine}" for worker in self._workers if worker.quarantine),
        )

    @property
    def lost(self) -> str | None:
        """Why no worker will come any more, in one line: requests fail at once then. None while there is hope."""
        return str(self._why_hopeless()) if self._hopeless() else None

    async def worker_stats(self) -> list[WorkerStats]:
        """What each ready worker says of itself; those that do not answer are left out."""
        ready = [worker for worker in self._workers if worker not in self._reviving]
        answers = await asyncio.gather(*(worker.stats() for worker in ready))
        return [answer for answer in answers if answer is not None]

    async def close(self) -> None:
        """Ends all workers with their processes. Requests still waiting or running get InfraError."""
        self._closed = True
        for reviving in self._reviving.values():
            reviving.cancel()
        # A worker that is being replaced is left half-way otherwise.
        await asyncio.gather(*self._reviving.values(), return_exceptions=True)
        self._refuse_waiting()
        await asyncio.gather(*(worker.end() for worker in self._workers))
        await asyncio.gather(*self._asks, return_exceptions=True)

    async def _try(self, ticket: Ticket, request: BenchRequest) -> tuple[Worker, Reply]:
        worker = await self._place_for(ticket)
        limit_s = self._deadline_s or 60.0 + 2 * request.settings.timeout_s * (_PHASES + self._concurrency)
        ask = asyncio.create_task(worker.ask(request, limit_s))
        self._asks.add(ask)

        def give_back(done: asyncio.Task[Reply]) -> None:
            self._asks.discard(done)
            if done.cancelled() or done.exception() or done.result().verdict is None:
                self._revive(worker)
            self._dispatch.leave(ticket)
            self._assign()

        ask.add_done_callback(give_back)
        # A caller that gives up must not free the place while the worker is still at it.
        return worker, await asyncio.shield(ask)

    async def _place_for(self, ticket: Ticket) -> Worker:
        granted: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._granted[ticket] = granted
        self._dispatch.enqueue(ticket)
        try:
            self._assign()
            while not granted.done():
                self._raise_if_hopeless()
                await asyncio.wait([granted], timeout=self._ready_timeout_s)
            return granted.result()
        except BaseException:
            self._dispatch.leave(ticket)
            self._assign()
            raise
        finally:
            del self._granted[ticket]

    def _assign(self) -> None:
        for ticket, number in self._dispatch.assign():
            granted = self._granted[ticket]
            if not granted.done():
                granted.set_result(self._workers[number])

    def _revive(self, worker: Worker) -> None:
        """Gives the worker nothing more until it says that it is ready."""
        if self._dispatch.ready_workers:
            self._last_ready = time.monotonic()
        self._dispatch.set_ready(worker.number, False)
        if worker not in self._reviving and not self._closed and not worker.out:
            self._reviving[worker] = asyncio.create_task(self._until_ready(worker))

    async def _until_ready(self, worker: Worker) -> None:
        while not await worker.ready(self._ready_timeout_s):
            self._changed.set()
            if self._hopeless():
                self._refuse_waiting()
            if worker.out:
                del self._reviving[worker]
                return
            await asyncio.sleep(min(_LONGEST_BACKOFF_S, self._backoff_s * 2**worker.failures))
        del self._reviving[worker]
        self._dispatch.set_ready(worker.number, True)
        self._changed.set()
        self._assign()

    def _hopeless(self) -> bool:
        if self._dispatch.ready_workers:
            return False
        given_up = all(worker.out or worker.failures >= _HOPELESS_AFTER for worker in self._workers)
        return given_up or self._closed or time.monotonic() - self._last_ready > self._ready_timeout_s

    def _why_hopeless(self) -> InfraError:
        if self._closed or not self._workers:
            return InfraError("the bench pool is not open")
        reasons = dict.fromkeys(worker.reason for worker in self._workers if worker.reason)
        return InfraError(
            "; ".join(reasons)
            or f"no bench worker was ready for {self._ready_timeout_s:.0f} s: each of {len(self._workers)} "
            f"needs {self._need}; `ray status` shows who holds what"
        )

    def _raise_if_hopeless(self) -> None:
        if self._hopeless():
            raise self._why_hopeless()

    def _refuse_waiting(self) -> None:
        for granted in self._granted.values():
            if not granted.done():
                granted.set_exception(self._why_hopeless())
