"""Generate Triton kernels, verify them, send failures back, keep every attempt as Parquet.

`python -m kb_ray.generate`: config, preflight, run, summary. Exit codes: 0 done or a budget reached, 2 input
that cannot be used (nothing was written), 1 our own failure, 130 and 143 stopped by a signal, 141 nobody reads
its output any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence

from kb_ray import cluster, observe
from kb_ray.config import RunConfig
from kb_ray.config_sources import parse_command
from kb_ray.drive import Drive, Ending
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.flagging import Flagging
from kb_ray.preflight import Ready, preflight
from kb_ray.stopping import exit_after, stop_on_signals, unless
from kb_ray.tally import Tally
from kb_ray.traces.run import open_run
from kb_ray.traces.sink import TraceSink

_FLUSH_ON_SIGNAL_S = 10.0
_LET_GO_S = 15.0
"""A signal to the process group also ends a local cluster, and Ray's client would then wait a minute for it."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = parse_command(RunConfig, sys.argv[1:] if argv is None else argv, prog="python -m kb_ray.generate")
        return asyncio.run(_command(config))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KbRayError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped: SIGINT received; start the same command again to go on", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has enough of it (`| head`); Python would complain again at exit. What was
        # finished is in the store, but a run that ended so is not done and must not say that it is.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


async def _command(config: RunConfig) -> int:
    ready = await preflight(config, on_skip=_note)
    try:
        # A Ctrl-C while Ray was starting arrives at the first pause: here, before anything is written.
        await asyncio.sleep(0)
        print(observe.plan_text(ready), flush=True)
        if config.dry_run:
            print(observe.first_prompt_text(ready))
            return 0
        if not ready.work and not ready.again:
            print(f"nothing to do: all {len(ready.planned)} episodes are in {ready.store.uri}")
            return 0
        return await _run(ready)
    finally:
        await ready.completer.aclose()
        if ready.cluster is not None:
            cluster.disconnect()


async def _run(ready: Ready) -> int:
    """Runs the episodes; whatever happens, what is finished is flushed and the workers are ended."""
    from kb_ray.bench.pool import BenchPool

    config = ready.config
    run = open_run(ready.store, ready.run)
    tally = Tally(total=len(ready.planned), earlier=ready.earlier, started=time.monotonic())
    pool = BenchPool(config.bench_workers, ready.bench_concurrency, ready.bench.device, run.run_id)
    sink = TraceSink(ready.store, config.save_interval)
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
    )
    ending: Ending | None = None
    with stop_on_signals(drive.stop) as stopped:
        try:
            if await unless(stopped, pool.start()):
                async with observe.progress(tally):
                    ending = await drive.run(ready.work, ready.again)
            else:
                ending = await drive.run([])
        finally:
            signalled = ending is not None and ending.kind == "signal"
            try:
                await asyncio.to_thread(sink.close, _FLUSH_ON_SIGNAL_S if signalled else None)
                if ending is not None:
                    print(observe.summary_text(ready, tally, ending, sink.written), flush=True)
                    if flagging and flagging.left_out:
                        print(f"left out:  {flagging.left_out} tasks, flagged as told above", flush=True)
            finally:
                with exit_after(_LET_GO_S if signalled else None, ending.exit_code if ending else 1):
                    await pool.close()
                    cluster.disconnect()
    return ending.exit_code


def _note(line: str) -> None:
    print(f"skipped: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
