"""Serve application that gives verdicts over HTTP: one front that owns a pool of bench workers.

`import_path: deployments.bench_app:build`. It only wires: what is answered is `kb_ray.bench.service`, who evaluates
`kb_ray.bench.pool`. One replica, since fair order and the bound on what waits hold within one process; it does no
work of its own.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from deployments.app import NODES
from deployments.arguments import argument_faults, checked
from kb_ray.bench.access import check_bound, read_access
from kb_ray.bench.bodies import Limits
from kb_ray.config import AT_ONCE
from kb_ray.errors import InfraError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from ray.serve import Application

HEAD = {"kb-pool": "head"}
"""Label selector of the head, where the tokens are."""
MAX_ONGOING = 20_000
"""Requests that Serve passes on at once: more than may wait here, so that it is this service that says 429."""


class BenchArgs(BaseModel):
    """`args` of the application."""

    model_config = ConfigDict(extra="forbid")

    device: Literal["cpu", "cuda"] | None = None
    """None: GPUs where the cluster has any when the application starts."""
    workers: int | tuple[int, int] | None = None
    """How many, or [fewest, most] between which they follow the queue; None or 0: one per GPU, or one on CPUs."""
    concurrency: int | None = Field(None, ge=1)
    """Candidates that one worker checks at once; None: as many as in a run on that device. Timing is alone in any
    case."""
    queue_limit: int = Field(1024, ge=2)
    """Requests of one token that may wait. A client takes at most half of what is left of it."""
    limits: Limits = Limits()
    token_file: str | None = None
    """File of tokens on the node of the front; KB_BENCH_TOKEN in its environment goes before it."""

    @field_validator("workers")
    @classmethod
    def _counts_are_counts(cls, workers: int | tuple[int, int] | None) -> int | tuple[int, int] | None:
        if isinstance(workers, tuple):
            fewest, most = workers
            if not 0 <= fewest <= most or most < 1:
                raise ValueError(f"[{fewest}, {most}] is not [fewest, most], with fewest from 0 to most, most from 1")
        elif workers is not None and workers < 0:
            raise ValueError(f"{workers} is no number of workers")
        return workers

    @model_validator(mode="after")
    def _a_batch_fits_the_queue(self) -> BenchArgs:
        if self.limits.batch > self.queue_limit // 2:
            raise ValueError(f"limits.batch {self.limits.batch} is more than half of queue_limit {self.queue_limit}")
        return self


def build(args: dict[str, Any]) -> Application:
    """The application described by `args` (see BenchArgs). ConfigError says which argument is unusable."""
    from ray import serve

    wanted = parse(args)
    deployment = serve.deployment(
        serve.ingress()(Bench), name="Bench", num_replicas=1, max_ongoing_requests=MAX_ONGOING,
        # The front reads the tokens of the node that it is on: those are the head's. Where no node is labelled it may
        # be any, and in no case one where strangers' code runs.
        ray_actor_options={
            "num_cpus": 0, "label_selector": HEAD, "fallback_strategy": [{"label_selector": NODES}]
        },
        health_check_timeout_s=60, graceful_shutdown_timeout_s=120,
    )  # fmt: skip
    return deployment.bind(wanted.model_dump(mode="json"))


def parse(args: dict[str, Any]) -> BenchArgs:
    """`args` checked. ConfigError names the first wrong one."""
    return checked(BenchArgs, args, faults(args))


def faults(args: Any) -> Iterator[str]:
    """One line for each argument that cannot be used."""
    yield from argument_faults(BenchArgs, args)


class Bench:
    """The front: it starts its pool, then answers; Serve starts another one where the pool is past hope."""

    async def __init__(self, args: dict[str, Any]) -> None:
        import ray

        from kb_ray.bench.pool import BenchPool

        self._args = parse(args)
        self._access = read_access(self._args.token_file)
        check_bound(self._access, await asyncio.to_thread(_bound_host))
        self._device = self._args.device or ("cuda" if ray.cluster_resources().get("GPU", 0) >= 1 else "cpu")
        # A name of its own: the workers of the front before may still be leaving.
        run_id = f"http-{uuid.uuid4().hex[:6]}"
        self._concurrency = self._args.concurrency or AT_ONCE[self._device]
        self._pool = BenchPool(self._args.workers, self._concurrency, self._device, run_id)
        await self._pool.start()

    def __serve_build_asgi_app__(self) -> FastAPI:
        from kb_ray.bench.service import Service, make_app

        args = self._args
        service = Service(
            self._pool, self._device, queue_limit=args.queue_limit, ahead=self._concurrency, limits=args.limits
        )
        return make_app(service, self._access, self._pool.close)

    async def check_health(self) -> None:
        """Asked by Serve; InfraError where no verdict can be given any more."""
        if self._pool.lost is not None:
            raise InfraError(self._pool.lost)


def _bound_host() -> str:
    """The address that Serve's proxies listen on. Blocks."""
    # Serve tells a replica neither its own address nor that of its proxies.
    from ray.serve.context import _get_global_client

    return str(_get_global_client().http_config.host)
