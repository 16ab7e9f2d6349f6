"""One start of a run, from config to summary: what every command that asks a model and verifies its answers does.

`python -m kb_ray.generate` is this and nothing else; `python -m kb_ray.evaluate` looks at the traces afterwards.
Exit codes: 0 done or a budget reached, 2 input that cannot be used (nothing was written), 1 our own failure, 130
and 143 stopped by a signal, 141 nobody reads its output any more.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from kb_ray import cluster, logs, observe
from kb_ray.config import RunConfig
from kb_ray.drive import Drive, Ending
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.flagging import Flagging
from kb_ray.head_watch import watching
from kb_ray.model.completer import Completer
from kb_ray.preflight import Planned, Ready, preflight
from kb_ray.stopping import exit_after, stop_on_signals, unless
from kb_ray.tally import Tally
from kb_ray.traces.lease import Lease
from kb_ray.traces.plans import write_plan
from kb_ray.traces.run import RunInfo, open_run
from kb_ray.traces.sink import TraceSink
from kb_ray.watching.presence import Presence
from kb_ray.watching.ray_meter import RayMeter
from kb_ray.watching.sampling import Sampler
from kb_ray.window import Window, misfits

_FLUSH_S = 10.0
"""For what is finished, where only seconds are left."""
_LET_GO_S = 35.0
"""For workers and cluster, where only seconds are left: longer than a worker may take to end what it has started and
then its actor (20 and 5 s, in bench.worker), which would else be left half done. Not for ever: a signal to the process
group also ends a local cluster, and Ray's client would then wait a minute for it."""


def exit_code_of(command: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs the command; its exit code, each failure told in one line."""
    try:
        return asyncio.run(command())
    except ConfigError as error:
        logs.warn(f"error: {error}", "error")
        return 2
    except KbRayError as error:
        logs.warn(f"stopped: {error}", "stopped")
        return 1
    except KeyboardInterrupt:
        logs.warn("stopped: SIGINT received; start the same command again to go on", "stopped")
        return 128 + signal.SIGINT


async def run(
    config: RunConfig, *, completer: Completer | None = None, select: Callable[[Planned], Planned] | None = None
) -> int:
    """Preflight, plan, episodes, summary; the exit code. Raises what `exit_code_of` knows to tell.

    `completer` answers in place of the model that the config names, `select` says which of the planned episodes
    are wanted; both are for commands with sources of their own.
    """
    logs.setup(config.log_format, config.api_key.get_secret_value() if config.api_key else None)
    ready = await preflight(config, on_skip=_note, completer=completer, select=select)
    logs.name_run(ready.run.run_id)
    try:
        # A Ctrl-C while Ray was starting arrives at the first pause: here, before anything is written.
        await asyncio.sleep(0)
        logs.say(observe.plan_text(ready), "plan", planned=len(ready.planned), to_do=len(ready.work))
        for line in ready.warnings:
            _warn(line)
        if config.dry_run:
            logs.say(observe.first_prompt_text(ready), "first_prompt")
            if ready.work or ready.again:
                await _look_at_first_prompts(ready)
            return 0
        if _nothing_to_do(ready):
            return 0
        return await _held(ready)
    finally:
        await ready.completer.aclose()
        if ready.cluster is not None:
            cluster.disconnect()


async def _look_at_first_prompts(ready: Ready) -> None:
    """Tells of those that do not fit the model's window. ConfigError where none does."""
    tasks = list({task.task_id: task for task, _ in ready.everything}.values())
    line = await misfits(Window(ready.config, ready.completer), tasks, lambda task: ready.opening(task)[0])
    if line is not None:
        _warn(line)


async def _held(ready: Ready) -> int:
    """Runs the episodes while nobody else may write to them."""
    run = open_run(ready.store, ready.run)
    lease = Lease(ready.store, ready.shard, run.run_id, tell=_warn)
    given_up = threading.Event()
    try:
        await asyncio.to_thread(lease.take, given_up.is_set)
        # Whoever held it before may have written until now.
        ready = await asyncio.to_thread(ready.looked_again)
        return 0 if _nothing_to_do(ready) else await _run(ready, run, lease)
    finally:
        given_up.set()
        await asyncio.to_thread(lease.release)


def _nothing_to_do(ready: Ready) -> bool:
    if ready.work or ready.again:
        return False
    of = "" if ready.shard.whole else f" of shard {ready.shard}"
    logs.say(f"nothing to do: all {len(ready.planned)} episodes{of} are in {ready.store.uri}", "nothing_to_do")
    return True


async def _run(ready: Ready, run: RunInfo, lease: Lease) -> int:
    """Runs the episodes; whatever happens, what is finished is flushed and the workers are ended."""
    from kb_ray.bench.pool import BenchPool

    config, meter, shard = ready.config, RayMeter(), ready.shard
    plan = write_plan(ready.store, ((task.task_id, sample) for task, sample in ready.everything))
    tally = Tally(total=len(ready.planned), earlier=ready.earlier, started=time.monotonic(), meter=meter)
    pool = BenchPool(
        config.worker_counts, ready.bench_concurrency, ready.bench.device, run.run_id + shard.suffix,
        nodes=config.bench_nodes, cpus=config.bench_cpus, idle_s=config.bench_idle, warn=_warn,
    )  # fmt: skip
    sink = TraceSink(ready.store, config.save_interval, may_write=lease.check)
    flagging = Flagging(pool, ready.bench, _note) if config.exclude_flagged else None
    drive = Drive(
        config,
        run_id=run.run_id,
        fingerprint=run.fingerprint,
        prompt=ready.prompt,
        bench=ready.bench,
        completer=ready.completer,
        pool=pool,
        capacity=lambda: pool.stats.capacity,
        sink=sink,
        tally=tally,
        admits=flagging.admits if flagging else None,
        opening=ready.opening,
    )
    sampler = Sampler(meter, tally, pool, sink)
    about = {} if shard.whole else {"shard": str(shard), "run_planned": len(ready.everything)}
    presence = Presence(ready.store, run.run_id, tally, about=about | {"plan": plan})
    _stop_when_lost(lease, drive)
    ending: Ending | None = None
    with stop_on_signals(drive.stop) as stopped:
        try:
            if await unless(stopped, pool.start()):
                async with sampler.going(), observe.progress(tally), _head_watched(ready, drive):
                    ending = await drive.run(ready.work, ready.again)
            else:
                ending = await drive.run([])
        finally:
            hurried = ending is not None and ending.hurried
            try:
                await asyncio.to_thread(sink.close, _FLUSH_S if hurried else None)
                if ending is not None:
                    logs.say(observe.summary_text(ready, tally, ending, sink.written), "summary", ended=ending.kind)
                    if flagging and flagging.left_out:
                        logs.say(f"left out:  {len(flagging.left_out)} tasks, flagged as told above", "left_out")
            finally:
                sampler.sample()
                _last_word(presence, ending, flagging.left_out if flagging else ())
                await asyncio.to_thread(lease.release)
                with exit_after(_LET_GO_S if hurried else None, ending.exit_code if ending else 1):
                    await pool.close()
                    cluster.disconnect()
    return ending.exit_code


def _head_watched(ready: Ready, drive: Drive) -> AbstractAsyncContextManager[None]:
    """Ends the run with its own words where the cluster that it is on does not answer any more."""
    if ready.cluster is None:
        return nullcontext()

    def lost(line: str) -> None:
        drive.stop(Ending("failing", line, exit_code=1, hurried=True))

    return watching(ready.cluster.address, lost)


def _stop_when_lost(lease: Lease, drive: Drive) -> None:
    """Nothing more is asked once another start writes."""
    loop = asyncio.get_running_loop()

    def stop(line: str) -> None:
        loop.call_soon_threadsafe(drive.stop, Ending("failing", line, exit_code=1))

    lease.on_loss(stop)


def _last_word(presence: Presence, ending: Ending | None, left_out: Iterable[str]) -> None:
    """What the store is told of the end; an error that is on its way out is one of our own."""
    failure = sys.exc_info()[1]
    if failure is not None or ending is None:
        presence.end("failed", str(failure) if isinstance(failure, KbRayError) else type(failure).__name__, left_out)
    else:
        presence.end(ending.kind, ending.message, left_out)


def _warn(line: str) -> None:
    logs.warn(f"warning: {line}", "warning")


def _note(line: str) -> None:
    logs.warn(f"skipped: {line}", "skipped")
