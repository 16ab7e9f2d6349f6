"""Best-of-N and GRPO on Ray: joins or starts a cluster, has a pool judge, keeps every attempt in the run's store."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import Literal

from kb_ray import cluster
from kb_ray.bench.pool import BenchPool
from kb_ray.bench.protocol import BenchRequest
from kb_ray.errors import ConfigError, StoreError
from kb_ray.flagging import Flagging
from kb_ray.learn.rollouts import Verify
from kb_ray.preflight import versions
from kb_ray.records import Task, Verdict
from kb_ray.traces.lease import Lease
from kb_ray.traces.run import RunInfo, open_run
from kb_ray.traces.shards import Shard
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import open_store
from kb_ray.training.openings import Openings, with_content
from kb_ray.training.rl_run import Judges, RlSettings, Say, tasks_of, train

_SAVE_INTERVAL = 64
_MAX_WAITING = 1 << 20
"""Tries of a batch are handed over at once, in the event loop, which must not wait while the store is away; the next
batch does."""
_FLUSH_ON_STOP_S = 10.0


async def run(settings: RlSettings, command: str, say: Say, address: str | None = None) -> int:
    """The whole run; optimizer steps taken in all. What is finished is flushed whatever happens."""
    settings = with_content(settings)
    tasks = tasks_of(settings, say)
    store = open_store(settings.output)
    store.check_writable()
    run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    connected = cluster.connect(run_id, address)
    pool: BenchPool | None = None
    sink: TraceSink | None = None
    lease: Lease | None = None
    stopped = False
    try:
        device = _device(settings, connected.gpus)
        info = open_run(store, _info(settings, command, run_id, device))
        lease = Lease(store, Shard(), info.run_id, tell=say)
        await asyncio.to_thread(lease.take)
        opening = Openings(settings, device)
        workers = settings.bench_workers
        if workers is None and settings.train_workers > 1:
            # One to each GPU that no process learns on.
            workers = max(1, connected.gpus - settings.train_workers)
        pool = BenchPool(workers, settings.bench_concurrency, device, info.run_id, warn=say)
        await pool.start()
        tasks = await _unflagged(settings, device, pool, tasks, say)
        sink = TraceSink(store, _SAVE_INTERVAL, max_waiting=_MAX_WAITING, may_write=lease.check)
        judges = Judges(_verify(settings, device, pool), sink.add, info.run_id, lease.check, sink.flush)
        return await train(settings, tasks, judges, opening, say)
    except asyncio.CancelledError:
        stopped = True
        raise
    finally:
        if sink is not None:
            await _closed(sink, stopped, say)
        if lease is not None:
            await asyncio.to_thread(lease.release)
        if pool is not None:
            await pool.close()
        cluster.disconnect()


async def _closed(sink: TraceSink, stopped: bool, say: Say) -> None:
    """Saves what was tried; in a run that is stopped as far as a short time allows, and then only tells of the rest."""
    try:
        await asyncio.to_thread(sink.close, _FLUSH_ON_STOP_S if stopped else None)
    except StoreError as error:
        if not stopped:
            raise
        say(str(error))


def _device(settings: RlSettings, gpus: int) -> Literal["cuda", "cpu"]:
    device = ("cuda" if gpus else "cpu") if settings.device == "auto" else settings.device
    if device == "cpu" and not settings.allow_untimed:
        raise ConfigError(
            "verdicts of a CPU are no rewards: train where there is a GPU, or give --allow-untimed for a test"
        )
    return device


def _info(settings: RlSettings, command: str, run_id: str, device: str) -> RunInfo:
    return RunInfo(
        run_id=run_id,
        fingerprint=settings.fingerprint(),
        identity=settings.identity() | {"command": command, "judged_on": device},
        config=settings.model_dump(mode="json"),
        versions=versions(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


async def _unflagged(
    settings: RlSettings, device: Literal["cuda", "cpu"], pool: BenchPool, tasks: list[Task], say: Say
) -> list[Task]:
    if not settings.exclude_flagged:
        return tasks
    flagging = Flagging(pool, settings.bench(device), say)
    admitted = await asyncio.gather(*[flagging.admits(task) for task in tasks])
    kept = [task for task, fine in zip(tasks, admitted, strict=True) if fine]
    if not kept:
        raise ConfigError(f"all {len(tasks)} tasks are flagged: name others, or give --no-exclude-flagged")
    return kept


def _verify(settings: RlSettings, device: Literal["cuda", "cpu"], pool: BenchPool) -> Verify:
    wanted = settings.bench(device)

    async def verify(task: Task, code: str) -> Verdict:
        request = BenchRequest(request_id=secrets.token_hex(8), task=task, kernel_code=code, settings=wanted)
        return await pool.evaluate(request)

    return verify
