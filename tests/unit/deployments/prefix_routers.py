"""A router of requests with replicas and a tree of beginnings that are none, and what it prefers. Knows no test.

The tree is the actor's own code in this process; no Ray runs. Nothing here depends on how fast the machine is: Serve's
clock stands still unless a test moves it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID, RequestMetadata
from ray.serve._private.request_router.common import PendingRequest

from deployments import prefix_tree
from deployments.prefix_router import PrefixRouter

DEPLOYMENT = DeploymentID(name="LLMServer:m", app_name="m")
OPENING = "You write Triton kernels. " * 20
FULL = 100
HUNG_S = 60.0
"""Long enough on any machine for what does not wait for ever."""
NEVER_S = 1e6
STALE_S = 11.0
"""Serve forgets the length of a queue after 10 s."""
NUMBERS = itertools.count()


class Replica:
    """As a router sees it."""

    def __init__(self, name: str, *adapters: str) -> None:
        self.replica_id = ReplicaID(unique_id=name, deployment_id=DEPLOYMENT)
        self.name, self.multiplexed_model_ids = name, set(adapters)
        self.node_id = self.availability_zone = "here"
        self.max_ongoing_requests = FULL
        self.has = 0
        self.silent = False
        self.asked = 0

    async def get_queue_len(self, *, deadline_s: float) -> int:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        return self.has


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Actor:
    """Handle of a tree that answers at once, or as `fault` says."""

    def __init__(self) -> None:
        self.tree = prefix_tree.Tree()
        self.asked: list[str] = []
        self.fault: Callable[[], Any] | None = None
        self.reached = 0

    def reach(self, deployment: DeploymentID) -> Actor:
        self.reached += 1
        return self

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *args: self._call(method, args))

    def _call(self, method: str, args: tuple[Any, ...]) -> asyncio.Future[Any]:
        self.asked.append(method)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.fault is None:
            answer.set_result(getattr(self.tree, method)(*args))
        elif (fault := self.fault()) is not None:
            answer.set_exception(fault)
        return answer


def started(clock: Clock | None = None, cache: bool = True, **settings: Any) -> PrefixRouter:
    router = PrefixRouter(
        deployment_id=DEPLOYMENT, handle_source=DeploymentHandleSource.REPLICA, use_replica_queue_len_cache=cache,
        get_curr_time_s=clock or Clock(),
    )  # fmt: skip
    router.initialize_state(**settings)
    return router


async def router_of(*replicas: Replica, **settings: Any) -> PrefixRouter:
    router = started(**settings)
    reached(router)
    router.update_replicas(list(replicas))
    # Serve asks new replicas for their lengths.
    while any(router.replica_queue_len_cache.get(replica.replica_id) is None for replica in replicas):
        await asyncio.sleep(0)
    return router


def reached(router: PrefixRouter) -> None:
    assert router._reaching is not None
    router._reaching.join(HUNG_S)
    assert not router._reaching.is_alive()


def request(prompt: Any = None, adapter: str = "", **fields: Any) -> PendingRequest:
    number = f"r{next(NUMBERS)}"
    metadata = RequestMetadata(request_id=number, internal_request_id=number, multiplexed_model_id=adapter)
    return PendingRequest(args=[SimpleNamespace(prompt=prompt, **fields), None], kwargs={}, metadata=metadata)


async def first(router: PrefixRouter, pending: PendingRequest) -> set[str]:
    """Those that are preferred."""
    ranks = await router.choose_replicas(list(router.curr_replicas.values()), pending)
    return {replica.name for replica in ranks[0]}


async def sent(router: PrefixRouter, pending: PendingRequest) -> str:
    """Name of the replica that got it, as Serve has it sent."""
    replica: Any = await asyncio.wait_for(router._choose_replica_for_request(pending), HUNG_S)
    router.on_send_request(replica.replica_id)
    router.on_request_routed(pending, replica.replica_id, None)
    return str(replica.name)
