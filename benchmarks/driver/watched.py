"""`python -m kb_ray.generate` with sleeping bench actors, watched from within its process: memory, CPU, queues.

    python -m benchmarks.driver.watched SAMPLES.jsonl [--profile FILE] -- FLAGS OF GENERATE

Everything else is the command's own: HTTP, Ray, store, progress and metrics. A line a second; whether requests waited
for a worker is looked at twenty times a second, and each verdict's whole time is noted.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from benchmarks.driver.actor import SleepingActor
from kb_ray import cluster, generate, running
from kb_ray.bench.protocol import BenchRequest
from kb_ray.records import Verdict
from kb_ray.watching.sampling import Sampler

Evaluate = Callable[[BenchRequest], Awaitable[Verdict]]
LOOK_EVERY_S = 0.05
LINE_EVERY_S = 1.0


class Probe:
    """Looks at the counters that the driver, the pool and the sink keep anyway."""

    def __init__(self, path: Path, tally: Any, pool: Any, sink: Any) -> None:
        self._tally, self._pool, self._sink, self._path = tally, pool, sink, path
        self._ended: list[tuple[float, float]] = []
        pool.evaluate = self._timed(pool.evaluate)
        threading.Thread(target=self._run, name="probe", daemon=True).start()

    def _timed(self, evaluate: Evaluate) -> Evaluate:
        async def timed(request: BenchRequest) -> Verdict:
            asked = time.monotonic()
            verdict = await evaluate(request)
            self._ended.append((asked, time.monotonic() - asked))
            return verdict

        return timed

    def _run(self) -> None:
        with self._path.open("w") as out:
            waited: list[float] = []
            written = 0.0
            while True:
                now = time.monotonic()
                # A place that is free is given away in the same step of the loop: waiting means that all are taken,
                # as far as the driver knows. What it sent ahead waits too.
                waited.append(now if self._pool.stats.waiting else -now)
                if now - written >= LINE_EVERY_S:
                    self._line(out, now, waited)
                    written, waited = now, []
                time.sleep(LOOK_EVERY_S)

    def _line(self, out: TextIO, now: float, waited: list[float]) -> None:
        tally, stats = self._tally, self._pool.stats
        ended, self._ended = self._ended, []
        row = {
            "t": now, "ended": ended, "rss_mib": rss_mib(), "cpu_s": time.process_time(), "verdicts": tally.verdicts,
            "finished": tally.finished, "written": self._sink.written, "generating": tally.generating,
            "waiting_on_model": tally.waiting_on_model, "waiting_on_bench": tally.waiting_on_bench,
            "pool_waiting": stats.waiting, "pool_running": stats.running, "capacity": stats.capacity,
            "sink_waiting": self._sink.waiting, "looks": waited,
        }  # fmt: skip
        out.write(json.dumps(row) + "\n")
        out.flush()


def rss_mib() -> float:
    """Memory of this process, MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def watch(path: Path) -> None:
    """Puts the probe where the run makes its sampler, and sleeping actors where it makes real ones."""

    class Watched(Sampler):
        def __init__(self, meter: Any, tally: Any, pool: Any, sink: Any) -> None:
            super().__init__(meter, tally, pool, sink)
            Probe(path, tally, pool, sink)

    # Before ray is imported, which the pool's worker does.
    cluster.prepare_environment()
    from kb_ray.bench import worker

    # For the life of this process, which runs nothing else.
    mock.patch.object(running, "Sampler", Watched).start()
    mock.patch.object(worker, "BenchActor", SleepingActor).start()


def main() -> int:
    """Runs the command; its exit code."""
    own, _, flags = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver.watched")
    parser.add_argument("samples", type=Path)
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args(own.split())
    watch(options.samples)
    if options.profile is None:
        return generate.main(flags.split())
    profile = cProfile.Profile()
    try:
        return int(profile.runcall(generate.main, flags.split()))
    finally:
        profile.dump_stats(options.profile)


if __name__ == "__main__":
    sys.exit(main())
