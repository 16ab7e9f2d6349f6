"""Hostile candidates through one pool, mixed with honest ones: is every honest verdict right, and what is left?

    python -m benchmarks.abuse --candidates 2000 --output abuse.json [--document docs/measurements.md]

On this machine's CPU, in Triton's interpreter; the pool's workers are actors of a Ray of its own. Writes JSON, and a
table into a Markdown file. Exit code 1 where an honest verdict was wrong, a candidate got none, or anything was left
behind; the speed afterwards is told, not failed: it depends on who else uses the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks import candidates, leftovers
from benchmarks.hostile import NAMES, SLOW, hostile
from benchmarks.marks import goal, put_between
from kb_ray import cluster, env_vars
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError

if TYPE_CHECKING:
    from kb_ray.bench.pool import BenchPool

BEGIN, END = "<!-- figures of benchmarks.abuse: begin -->", "<!-- figures of benchmarks.abuse: end -->"
_TASK = candidates.add_relu((64, 64))
_SETTLE_S = 10.0
_READY_S = 600.0
_GROWTH = {"processes": 0, "recorded_groups": 0, "files": 8, "trusted_mib": 128, "trusted_descriptors": 8}
"""How much more than before may be there: caches of what was verified count too."""
_WORDS = {
    "processes": "processes of the workers",
    "recorded_groups": "groups of candidates",
    "files": "files and folders of the workers",
    "trusted_mib": "memory of judge and zygotes, MiB",
    "trusted_descriptors": "open descriptors of judge and zygotes",
}


@dataclass(frozen=True)
class Job:
    """One candidate, and what it must come out as; None: whatever it earned."""

    kind: str
    code: str
    wanted: Literal["ok", "mismatch"] | None


def main(argv: Sequence[str] | None = None) -> int:
    """Measures; returns the exit code."""
    options = _options(argv)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    # Neither a cluster that somebody else uses nor one that is left for others; and no others' temporary files.
    os.environ[env_vars.RAY_ADDRESS] = "local"
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        cluster.connect(f"abuse{os.getpid()}")
        try:
            report = asyncio.run(measure(options, random.Random(seed))) | {"seed": seed}
        finally:
            cluster.disconnect()
            tempfile.tempdir = None
    text = json.dumps(report, indent=1)
    print(text)
    print(render(report))
    if options.output:
        options.output.write_text(text + "\n")
    if options.document:
        _write(options.document, report)
    return 1 if report["faults"] else 0


async def measure(options: argparse.Namespace, draw: random.Random) -> dict[str, Any]:
    """Honest ones alone, all of them mixed, honest ones alone again; then what is left."""
    from kb_ray.bench.pool import BenchPool

    outside = leftovers.outside()
    run_id = f"abuse{os.getpid()}"
    bench = BenchPool(options.workers, options.concurrency, "cpu", run_id, cpus=0.5)
    await bench.start()
    pool = Pool(bench, options)
    try:
        await pool.run(honest(range(8 * options.workers)))
        async with asyncio.timeout(_READY_S):
            while bench.stats.ready < options.workers:
                await asyncio.sleep(0.2)
        idle = await pool.inside()
        before = await pool.speed(range(100, 100 + options.honest))
        mixed = _mixed(options.candidates, options.honest, draw)
        started = time.monotonic()
        outcomes = await pool.run(mixed)
        seconds = time.monotonic() - started
        left = await _settled(pool, idle)
        after = await pool.speed(range(100_000, 100_000 + options.honest))
        restarts = sum(worker.restarts for worker in await bench.worker_stats())
    finally:
        await bench.close()
    report = _report(options, outcomes, seconds, (before, after)) | {"idle": idle, "left": left}
    report |= {"infra_retries": bench.stats.infra_retries, "restarts": restarts}
    report["processes_after"] = leftovers.processes(f"kb-bench-{run_id}-")
    report["new_outside"] = {where: sorted(found - outside[where]) for where, found in leftovers.outside().items()}
    report["faults"] = _faults(report)
    return report


class Pool:
    """A pool of bench workers, asked by twice as many as it serves at once."""

    def __init__(self, bench: BenchPool, options: argparse.Namespace) -> None:
        self._bench = bench
        self._patient = BenchSettings(device="cpu", n_correctness=2, timeout_s=60.0)
        self._hurried = BenchSettings(device="cpu", n_correctness=2, timeout_s=options.timeout)
        self._places = asyncio.Semaphore(2 * options.workers * options.concurrency)
        self._asked = 0

    async def run(self, jobs: Iterable[Job]) -> list[tuple[Job, str]]:
        """Each job with the status that it got."""
        wanted = list(jobs)
        return list(zip(wanted, await asyncio.gather(*map(self._status, wanted)), strict=True))

    async def speed(self, numbers: range) -> float:
        """Honest verdicts a second."""
        started = time.monotonic()
        found = await self.run(honest(numbers))
        assert all(job.wanted == status for job, status in found), found
        return len(numbers) / (time.monotonic() - started)

    async def inside(self) -> dict[str, Any]:
        """What its workers hold now."""
        return leftovers.inside(await self._bench.worker_stats())

    async def _status(self, job: Job) -> str:
        async with self._places:
            self._asked += 1
            # What is slow for its neighbours is no fault of an honest one; some harm takes time.
            settings = self._patient if job.wanted or job.kind in SLOW else self._hurried
            name = f"abuse-{self._asked}"
            request = BenchRequest(request_id=name, task=_TASK, kernel_code=job.code, settings=settings)
            try:
                return str((await self._bench.evaluate(request)).status)
            except InfraError:
                return "infra_error"


def honest(numbers: Iterable[int]) -> list[Job]:
    """Kernels that are right, and every third one that is wrong."""
    return [
        Job("honest, wrong", candidates.right(n).replace("x + y, 0.0", "x - y, 0.0"), "mismatch")
        if n % 3 == 0
        else Job("honest, right", candidates.right(n), "ok")
        for n in numbers
    ]


def _mixed(hostile_ones: int, honest_ones: int, draw: random.Random) -> list[Job]:
    jobs = [Job(name, hostile(name, n), None) for n in range(hostile_ones) for name in (NAMES[n % len(NAMES)],)]
    jobs += honest(range(10_000, 10_000 + max(honest_ones, hostile_ones // 4)))
    draw.shuffle(jobs)
    return jobs


def _report(
    options: argparse.Namespace, outcomes: list[tuple[Job, str]], seconds: float, speeds: tuple[float, float]
) -> dict[str, Any]:
    kinds: dict[str, Counter[str]] = {}
    for job, status in outcomes:
        kinds.setdefault(job.kind, Counter())[status] += 1
    judged = [(job, status) for job, status in outcomes if job.wanted]
    wrong = [f"{job.kind}: {status}" for job, status in judged if job.wanted != status]
    return {
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "hostile": len(outcomes) - len(judged),
        "honest": len(judged),
        "workers": options.workers,
        "concurrency": options.concurrency,
        "seconds": seconds,
        "wrong": wrong,
        "infra_errors": sum(status == "infra_error" for _, status in outcomes),
        "verdicts_per_s": {"before": speeds[0], "after": speeds[1], "change": speeds[1] / speeds[0] - 1},
        "statuses": {kind: dict(found) for kind, found in sorted(kinds.items())},
    }


async def _settled(pool: Pool, idle: dict[str, Any]) -> dict[str, Any]:
    """The same after a while in which the last of the killed may go."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        found = await pool.inside()
        if all(found[what] <= idle[what] for what in ("processes", "recorded_groups")) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


def _faults(report: dict[str, Any]) -> list[str]:
    """What should not be, one line each."""
    idle, left = report["idle"], report["left"]
    faults = [f"wrong verdict on an honest one: {line}" for line in report["wrong"]]
    faults += [f"{report['infra_errors']} without a verdict"] * (report["infra_errors"] > 0)
    for what in _GROWTH:
        if not _stayed(report, what):
            faults.append(f"{what}: {left[what]:.0f} left, {idle[what]:.0f} before")
    faults += [f"process left: {line}" for line in report["processes_after"]]
    faults += [f"{where} left: {', '.join(found)[:200]}" for where, found in report["new_outside"].items() if found]
    return faults


def render(report: dict[str, Any]) -> str:
    """A line on what ran where, a row for each figure, and a row for each kind with its verdicts."""
    idle, left, speed = report["idle"], report["left"], report["verdicts_per_s"]
    wrong, infra, after = len(report["wrong"]), report["infra_errors"], len(report["processes_after"])
    outside = sum(map(len, report["new_outside"].values()))
    head = (
        f"{report['machine']['cores']} cores, load {report['machine']['load']:.1f}; {report['hostile']} hostile "
        f"candidates and {report['honest']} honest ones, {report['workers']} worker{'s' * (report['workers'] > 1)} "
        f"with {report['concurrency']} at once, in {report['seconds']:.0f} s.\n"
    )
    figures = [
        ("honest verdicts that were wrong", f"{wrong} of {report['honest']}", goal("0", not wrong)),
        ("candidates without a verdict", str(infra), goal("0", not infra)),
        (
            "tries that were repeated, workers' processes that were replaced",
            f"{report['infra_retries']}, {report['restarts']}",
            "",
        ),
        (
            "honest verdicts a second, before and after",
            f"{speed['before']:.2f}, {speed['after']:.2f} ({speed['change']:+.1%})",
            goal("within 10 %", abs(speed["change"]) <= 0.1),
        ),
        ("new temporary files, shared memory, segments", str(outside), goal("0", not outside)),
        ("processes once the pool is closed", str(after), goal("0", not after)),
        *(
            (f"{_WORDS[what]}, before and after", f"{idle[what]:.0f}, {left[what]:.0f}", _as_before(report, what))
            for what in _WORDS
        ),
        ("faults", "; ".join(report["faults"]) or "none", goal("none", not report["faults"])),
    ]
    rows = [f"| {what} | {measured} | {wanted} |" for what, measured, wanted in figures]
    kinds = [
        f"| {kind} | {', '.join(f'{status} {count}' for status, count in sorted(found.items()))} |"
        for kind, found in report["statuses"].items()
    ]
    return "\n".join(
        [head, "| | measured | goal |", "|---|---|---|", *rows, "", "| candidates | verdicts |", "|---|---|", *kinds]
    )


def _as_before(report: dict[str, Any], what: str) -> str:
    return goal("as before" + f", {_GROWTH[what]} more at most" * (_GROWTH[what] > 0), _stayed(report, what))


def _stayed(report: dict[str, Any], what: str) -> bool:
    """Whether there is no more of it than there may be."""
    return bool(report["left"][what] <= report["idle"][what] + _GROWTH[what])


def _write(path: Path, report: dict[str, Any]) -> None:
    """Replaces what stands between the marks, or appends it with them."""
    put_between(path, BEGIN, END, render(report))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abuse", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--candidates", type=int, default=2000, help="hostile ones; a quarter as many honest are mixed in"
    )
    parser.add_argument("--honest", type=int, default=120, help="honest ones alone, before and after")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=2, help="of each worker")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds per phase for hostile ones")
    parser.add_argument("--seed", type=int, help="of the order; printed")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--document", type=Path, help="Markdown file that gets the table")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
