"""One Ray actor of the pool, seen from the driver: created, asked, quarantined, replaced when lost, ended.

Turns whatever Ray reports into a `Reply` or a plain answer. Does not know the queue, other workers, or
whether a request is tried again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError

from kb_ray.bench.actor import BenchActor, Device, Reply, WorkerStats, one_line
from kb_ray.bench.dispatch import AHEAD
from kb_ray.bench.host import Fault
from kb_ray.bench.neighbours import GpuUse
from kb_ray.bench.placement import Placement
from kb_ray.bench.protocol import BenchRequest, judged
from kb_ray.bench.site import Site

_STOP_S, _COMING_S = 5.0, 1.0
_END_S = 20.0
"""For a worker to end its processes and to remove what they left, on a busy machine too."""
_FIRST_REMINDER_S = 0.1
_READMISSIONS = 2
"""How often a device comes back from quarantine: one that is found sick again and again is not worth its verdicts."""


class Worker:
    """Worker `number` of a run. Creating it asks Ray for the actor; `ready` tells when it is there."""

    def __init__(
        self, number: int, run_id: str, device: Device, concurrency: int, placement: Placement,
        fault: Fault | None = None,
    ) -> None:  # fmt: skip
        self.number = number
        self.name = f"kb-bench-{run_id}-{number}"
        self.failures = 0
        """Starts in a row that the worker itself reported as failed."""
        self.reason = ""
        """Why the last of them failed."""
        self.quarantine = ""
        """Why its device is not trusted now."""
        self.out = False
        """Whether it takes no part any more: in quarantine for good, or refused."""
        self.site: Site | None = None
        """The machine it was last ready on, as far as it said."""
        self._readmitted = 0
        self._fault = fault
        self._device = device
        self._concurrency = concurrency
        self._placement = placement
        self._was_ready = False
        # Its actor hangs or is dead for good: `ready` puts a new one in its place.
        self._lost = False
        self._actor = self._create()

    async def ask(self, request: BenchRequest, limit_s: float) -> Reply:
        """The worker's reply to this very request; any failure of ours is an infra reply. Never raises."""
        actor = self._actor
        try:
            answer = await asyncio.wait_for(actor.evaluate.remote(request.model_dump_json()), limit_s)
            reply = Reply.model_validate_json(answer)
            about = reply.verdict.judged if reply.verdict is not None else None
            if about not in (None, judged(request.task, request.kernel_code)):
                infra = f"{self.name} answered with the verdict on another candidate"
            elif reply.request_id == request.request_id:
                if reply.quarantine is not None and actor is self._actor:
                    self.quarantine = reply.quarantine
                return reply
            else:
                infra = f"{self.name} answered request {reply.request_id} in place of this one"
        except TimeoutError:
            self._lost |= actor is self._actor
            infra = f"{self.name} gave no answer within {limit_s:.0f} s and was replaced"
        except RayError as error:
            infra = f"{self.name}: {one_line(error)}"
        return Reply(request_id=request.request_id, infra=infra)

    async def give_up(self, request_id: str, ask: asyncio.Task[Reply]) -> None:
        """Has the candidate killed of a request that nobody waits for; says it again until `ask` is answered.

        Again, since it may overtake the request itself, or be lost with an actor that Ray is restarting.
        """
        pause = _FIRST_REMINDER_S
        while not ask.done():
            with suppress(RayError, TimeoutError):
                await asyncio.wait_for(self._actor.cancel.remote(request_id), _STOP_S)
            await asyncio.wait([ask], timeout=pause)
            pause = min(2 * pause, _STOP_S)

    def call_back(self, request_id: str) -> None:
        """Asks for a request that was sent ahead; it is answered `called_back` if it had not begun, else as usual."""
        self._actor.call_back.remote(request_id)

    async def ready(self, timeout_s: float) -> bool:
        """Waits for the worker's word, `timeout_s` at most. False: ask again after a while."""
        if self._lost:
            await self._kill()
            self._actor, self._lost = self._create(), False
        asked = self._actor.readmit if self.quarantine else self._actor.ready
        try:
            reason = await asyncio.wait_for(asked.remote(), timeout_s)
        except ActorDiedError as error:
            self._lost = True
            self.failures, self.reason = self.failures + 1, f"{self.name}: {one_line(error)}"
            return False
        except TimeoutError:
            # An actor that never came up waits for room in the cluster; one that did hangs.
            self._lost |= self._was_ready
            return False
        except RayError:
            # Ray is restarting the actor, which is no failure of the worker to start.
            return False
        if reason is not None:
            self.failures, self.reason = self.failures + 1, reason
        elif not self._lost:
            self.failures, self._was_ready = 0, True
            self.site = await self._ask_site()
        return self._admitted(reason) if self.quarantine else reason is None and not self._lost

    def _admitted(self, reason: str | None) -> bool:
        """Whether the quarantine ends. `reason`: why the device failed its check after the restart."""
        if reason is None and self._readmitted < _READMISSIONS:
            self._readmitted += 1
            self.quarantine = ""
            return True
        self.out = True
        again = "for the third time" if reason is None else "still so after a restart"
        self.reason = f"{self.name} stays in quarantine: {self.quarantine}, {again}"
        return False

    async def stats(self) -> WorkerStats | None:
        """What the worker says of itself; None where it does not answer."""
        with suppress(RayError, TimeoutError):
            return WorkerStats.model_validate(await asyncio.wait_for(self._actor.stats.remote(), _STOP_S))
        return None

    async def gpu_use(self) -> GpuUse | None:
        """What it says of the GPUs of its machine, also while it starts; None where it does not answer."""
        # One that waits for room in the cluster must not hold up what is asked of the others.
        limit_s = _STOP_S if self.site is not None else _COMING_S
        with suppress(RayError, TimeoutError):
            return GpuUse.model_validate(await asyncio.wait_for(self._actor.gpu_use.remote(), limit_s))
        return None

    async def _ask_site(self) -> Site | None:
        with suppress(RayError, TimeoutError):
            return Site.model_validate(await asyncio.wait_for(self._actor.site.remote(), _STOP_S))
        return None

    async def end(self) -> None:
        """Lets the worker end its processes, then ends the actor, also one that does not answer in time."""
        if self._was_ready:
            with suppress(RayError, TimeoutError):
                await asyncio.wait_for(self._actor.stop.remote(), _END_S)
        await self._kill()

    def _create(self) -> Any:
        options = self._placement.options(self.name, self._concurrency + AHEAD)
        arguments = (self._device, self._concurrency, self.name, None, self._fault)
        return ray.remote(BenchActor).options(**options).remote(*arguments)

    async def _kill(self) -> None:
        """Ends the actor for good and waits until Ray has let go of its name.

        In a thread of its own: where the cluster's head is gone Ray's calls wait for it, and the run must still end.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(_end_actor, self._actor, self.name), 2 * _STOP_S)


def _end_actor(actor: Any, name: str) -> None:
    ray.kill(actor, no_restart=True)
    end = time.monotonic() + _STOP_S
    while time.monotonic() < end:
        try:
            ray.get_actor(name)
        except ValueError:
            return
        time.sleep(0.02)
