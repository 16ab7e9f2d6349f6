"""The pool of bench workers: a request goes to the least busy one, and to another one if that breaks.

Only infrastructure failures are retried; a verdict is returned as it came, marked where others used the node's
GPUs meanwhile. Does not know how workers come and go, how a verdict is reached, what an episode is, or what happens
to the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import ray

from kb_ray.bench.actor import Device, Reply, WorkerStats
from kb_ray.bench.crew import Crew, once
from kb_ray.bench.dispatch import AHEAD, Dispatch, Ticket
from kb_ray.bench.host import Fault
from kb_ray.bench.placement import Counts, Nodes, Placement, place
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.scaling import Bounds, Scaling
from kb_ray.bench.watch import Watch
from kb_ray.bench.worker import Worker
from kb_ray.errors import InfraError, ReferenceFault
from kb_ray.records import Record, Verdict

_READY_S, _NODE_READY_S = 600.0, 1800.0
"""Time for the first worker to be ready; the second where its node may have to boot and fetch an image first."""
_PHASES = 8
"""More than the phases of any evaluation, reference and repetition included."""

log = logging.getLogger("kb_ray.bench")


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
    leaving: int = 0
    """Workers that finish what they have and then end."""
    quarantined: tuple[str, ...] = ()
    """One line for each worker whose device is not trusted now."""


class BenchPool:
    """Ray actors that verify candidates, each `concurrency` at once. For one event loop.

    `workers`: how many, or (fewest, most) between which they follow the queue; None or 0 takes one per GPU, or
    one on CPUs. `device`: "cuda" or "cpu". `run_id` goes into the actors' names. `nodes`, `cpus`: see `place`.
    `idle_s`: seconds for which a worker that is not needed stays. `ready_timeout_s`: seconds without any ready
    worker before requests fail, None: 600, or 1800 where nodes may have to come. `tries`: tries of one request, the
    last with a worker to itself. `backoff_s`: wait before the second try, doubled after. `deadline_s`: seconds for
    one try, None derives it from the request's timeouts. `warn` gets one line about what is no failure; by default it
    is logged. `faults`, for tests: by worker number, see Evaluator.
    """

    def __init__(
        self,
        workers: Counts,
        concurrency: int,
        device: Device,
        run_id: str,
        *,
        nodes: Nodes = "auto",
        cpus: float | None = None,
        idle_s: float = 120.0,
        ready_timeout_s: float | None = None,
        tries: int = 3,
        backoff_s: float = 1.0,
        deadline_s: float | None = None,
        warn: Callable[[str], None] | None = None,
        faults: Mapping[int, Fault] | None = None,
    ) -> None:
        self._wanted, self._nodes, self._cpus, self._idle_s = workers, nodes, cpus, idle_s
        self._concurrency = concurrency
        self._device = device
        self._run_id = run_id
        self._ready_timeout_s = ready_timeout_s
        self._tries, self._backoff_s, self._deadline_s = tries, backoff_s, deadline_s
        self._warn = once(warn or log.warning)
        self._faults = faults or {}
        self._dispatch = Dispatch(concurrency, AHEAD)
        self._crew: Crew | None = None
        self._watch: Watch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._granted: dict[Ticket, asyncio.Future[Worker]] = {}
        self._asks: set[asyncio.Task[Reply]] = set()
        self._given_up: set[asyncio.Task[None]] = set()
        self._orders = itertools.count()
        self._changed = asyncio.Event()
        self._verdicts = 0
        self._infra_retries = 0
        self.held_back: Callable[[], int] = lambda: 0
        """Requests that whoever asks will send once there is room: workers are asked for them too."""

    async def start(self) -> None:
        """Asks for the workers that there are always, and returns when one is ready; the others warm up meanwhile.

        A pool that may be empty returns at once. Raises ConfigError where the cluster has no GPU for them, InfraError
        where none gets ready.
        """
        nodes, total, free = ray.nodes(), ray.cluster_resources(), ray.available_resources()
        placement = place(self._device, self._wanted, nodes, total, free, where=self._nodes, cpus=self._cpus)
        self._ready_timeout_s = self._ready_timeout_s or (_NODE_READY_S if placement.waits_for_nodes else _READY_S)
        self._crew = self._crew_on(placement, self._ready_timeout_s)
        self._crew.open()
        if placement.num_gpus:
            self._watch = Watch(self._crew.workers.values, self._warn)
            self._watching = asyncio.create_task(self._watch.run())
        try:
            while placement.low and not self._dispatch.ready_workers:
                self._raise_if_hopeless()
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), self._ready_timeout_s)
        except BaseException:
            await self.close()
            raise

    def _crew_on(self, placement: Placement, ready_timeout_s: float) -> Crew:
        def hire(number: int) -> Worker:
            fault = self._faults.get(number)
            return Worker(number, self._run_id, self._device, self._concurrency, placement, fault)

        return Crew(
            self._dispatch,
            Scaling(Bounds(placement.low, placement.workers, self._idle_s), self._concurrency),
            hire,
            self._somebody_changed,
            need=placement.need,
            ready_timeout_s=ready_timeout_s,
            backoff_s=self._backoff_s,
            warn=self._warn,
            held_back=lambda: self.held_back(),
        )

    async def evaluate(self, request: BenchRequest) -> Verdict:
        """The verdict on one candidate. InfraError, with the history, when every try failed on our side.

        Cancelled, it has the candidate killed; the place is free again once that is done.
        """
        order = next(self._orders)
        failed: list[Reply] = []
        avoid: frozenset[int] = frozenset()
        while len(failed) < self._tries:
            if failed:
                await asyncio.sleep(self._backoff_s * 2 ** (len(failed) - 1))
            alone = len(failed) > 0 and len(failed) == self._tries - 1
            worker, reply = await self._try(Ticket(order, avoid, alone, request.request_id), request)
            if reply.verdict is not None:
                self._verdicts += 1
                return reply.verdict
            if reply.called_back:
                continue
            log.info("a try of %s failed: %s", request.task.task_id, reply.infra)
            avoid |= {worker.number}
            # In quarantine it was not tried at all, and the worker is out of the way now.
            failed += [reply] if reply.quarantine is None else []
            if sum(reply.blames_reference for reply in failed) == 2:
                break
            self._infra_retries += len(failed) < self._tries
        tried = "; ".join(str(reply.infra) for reply in failed)
        fault = ReferenceFault if sum(reply.blames_reference for reply in failed) == 2 else InfraError
        raise fault(f"no verdict for {request.task.task_id} in {len(failed)} tries: {tried}")

    @property
    def stats(self) -> PoolStats:
        """Counts now; costs nothing."""
        ready, ahead = self._dispatch.ready_workers, self._dispatch.sent_ahead
        workers = self._crew.workers.values() if self._crew else ()
        return PoolStats(
            waiting=self._dispatch.waiting + ahead,
            running=self._dispatch.running - ahead,
            verdicts=self._verdicts,
            infra_retries=self._infra_retries,
            capacity=ready * self._concurrency,
            workers=len(workers),
            ready=ready,
            leaving=self._crew.leaving if self._crew else 0,
            quarantined=tuple(f"{worker.name}: {worker.quarantine}" for worker in workers if worker.quarantine),
        )

    @property
    def lost(self) -> str | None:
        """Why no worker will come any more, in one line: requests fail at once then. None while there is hope."""
        return None if (reason := self._hopeless()) is None else str(reason)

    async def worker_stats(self) -> list[WorkerStats]:
        """What each ready worker says of itself; those that do not answer are left out."""
        answers = await asyncio.gather(*(worker.stats() for worker in (self._crew.ready() if self._crew else ())))
        return [answer for answer in answers if answer is not None]

    async def close(self) -> None:
        """Ends all workers with their processes. Requests still waiting or running get InfraError."""
        if self._watching is not None:
            self._watching.cancel()
        if self._crew is not None:
            await self._crew.close()
        self._refuse_waiting()
        await asyncio.gather(*self._asks, *self._given_up, return_exceptions=True)

    async def _try(self, ticket: Ticket, request: BenchRequest) -> tuple[Worker, Reply]:
        crew = self._open_crew()
        worker = await self._place_for(ticket)
        limit_s = self._deadline_s or 60.0 + 2 * request.settings.timeout_s * (_PHASES + self._concurrency + AHEAD)
        began = time.monotonic()
        ask = asyncio.create_task(worker.ask(request, limit_s))
        self._asks.add(ask)

        def give_back(done: asyncio.Task[Reply]) -> None:
            self._asks.discard(done)
            if done.cancelled() or done.exception() or done.result().broke:
                crew.revive(worker)
            self._dispatch.leave(ticket)
            self._assign()

        ask.add_done_callback(give_back)
        try:
            # A caller that gives up must not free the place while the worker is still at it.
            return worker, await self._marked(await asyncio.shield(ask), worker, began)
        except asyncio.CancelledError:
            self._given_up.add(giving_up := asyncio.create_task(worker.give_up(request.request_id, ask)))
            giving_up.add_done_callback(self._given_up.discard)
            raise

    async def _marked(self, reply: Reply, worker: Worker, began: float) -> Reply:
        if self._watch is None or reply.verdict is None or worker.site is None:
            return reply
        verdict = await self._watch.marked(reply.verdict, worker.site.node, began)
        return reply.model_copy(update={"verdict": verdict})

    async def _place_for(self, ticket: Ticket) -> Worker:
        self._raise_if_hopeless()
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
        """Demand has changed, or a place is free."""
        crew = self._open_crew()
        crew.steer()
        for ticket, number in self._dispatch.assign():
            granted = self._granted[ticket]
            if not granted.done():
                granted.set_result(crew.workers[number])
        for ticket, number in self._dispatch.misplaced():
            crew.workers[number].call_back(ticket.request_id)

    def _somebody_changed(self) -> None:
        """A worker got ready, or failed."""
        self._changed.set()
        if self._hopeless():
            self._refuse_waiting()
        self._assign()

    def _hopeless(self) -> InfraError | None:
        try:
            return self._open_crew().hopeless()
        except InfraError as not_open:
            return not_open

    def _open_crew(self) -> Crew:
        if self._crew is None:
            raise InfraError("the bench pool is not open")
        return self._crew

    def _raise_if_hopeless(self) -> None:
        if reason := self._hopeless():
            raise reason

    def _refuse_waiting(self) -> None:
        for granted in self._granted.values():
            if not granted.done():
                granted.set_exception(self._hopeless() or InfraError("the bench pool is closed"))
