"""Hostile candidates through one pool, mixed with honest ones: is every honest verdict right, and what is left?

    python -m benchmarks.abuse --candidates 2000 --output abuse.json [--document docs/measurements.md]

On this machine's CPU, in Triton's interpreter. Writes JSON, and a table into a Markdown file. Exit code 1 where an
honest verdict was wrong, a candidate got none, or anything was left behind; the speed afterwards is told, not failed:
it depends on who else uses the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks import candidates
from benchmarks.hostile import NAMES, hostile
from benchmarks.marks import put_between
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError

BEGIN, END = "<!-- figures of benchmarks.abuse: begin -->", "<!-- figures of benchmarks.abuse: end -->"
MIB = 1 << 20
_TASK = candidates.add_relu((64, 64))
_SETTLE_S = 10.0
_GROWTH = {"processes": 0, "recorded_groups": 0, "files": 8, "trusted_mib": 128, "trusted_descriptors": 8}
"""How much more than before may be there: caches of what was verified count too."""
_WORDS = {
    "processes": "processes of the evaluator",
    "recorded_groups": "groups of candidates",
    "files": "files and folders of the evaluator",
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
    report = measure(options, random.Random(seed)) | {"seed": seed}
    text = json.dumps(report, indent=1)
    print(text)
    print(render(report))
    if options.output:
        options.output.write_text(text + "\n")
    if options.document:
        _write(options.document, report)
    return 1 if report["faults"] else 0


def measure(options: argparse.Namespace, draw: random.Random) -> dict[str, Any]:
    """Honest ones alone, all of them mixed, honest ones alone again; then what is left."""
    outside = _outside()
    # The usual bounds, but for memory: several hogs at once must not be what ends this machine.
    memory = min(10 << 30, _available() // (2 * options.concurrency))
    bounds = {"memory_bytes": memory, "tasks": 256, "scratch_bytes": 2 << 30, "scratch_files": 20_000}
    evaluator = Evaluator(device="cpu", concurrency=options.concurrency, name="abuse", bounds=bounds)
    evaluator.start()
    pool = Pool(evaluator, options.timeout)
    folder = evaluator.run_dir
    assert folder is not None
    try:
        pool.run(honest(range(8)), options.concurrency)
        idle = _inside(evaluator, folder)
        before = pool.speed(range(100, 100 + options.honest))
        mixed = _mixed(options.candidates, options.honest, draw)
        started = time.monotonic()
        outcomes = pool.run(mixed, options.concurrency)
        seconds = time.monotonic() - started
        left = _settled(evaluator, folder, idle)
        after = pool.speed(range(100_000, 100_000 + options.honest))
    finally:
        evaluator.stop()
    report = _report(options, outcomes, seconds, (before, after)) | {"idle": idle, "left": left}
    report["new_outside"] = {where: sorted(found - outside[where]) for where, found in _outside().items()}
    report["folder_left"] = folder.exists()
    report["faults"] = _faults(report)
    return report


class Pool:
    """An evaluator, asked by as many as it serves at once."""

    def __init__(self, evaluator: Evaluator, timeout_s: float) -> None:
        self._evaluator = evaluator
        self._patient = BenchSettings(device="cpu", n_correctness=2)
        self._hurried = BenchSettings(device="cpu", n_correctness=2, timeout_s=timeout_s)
        self._asked = 0

    def run(self, jobs: Iterable[Job], at_once: int) -> list[tuple[Job, str]]:
        """Each job with the status that it got."""
        with ThreadPoolExecutor(at_once) as threads:
            return list(threads.map(lambda job: (job, self._status(job)), jobs))

    def speed(self, numbers: range) -> float:
        """Honest verdicts a second."""
        started = time.monotonic()
        found = self.run(honest(numbers), self._evaluator.concurrency)
        assert all(job.wanted == status for job, status in found), found
        return len(numbers) / (time.monotonic() - started)

    def _status(self, job: Job) -> str:
        self._asked += 1
        name = f"abuse-{self._asked}-{id(job)}"
        # What is slow for its neighbours is no fault of an honest one.
        settings = self._patient if job.wanted else self._hurried
        request = BenchRequest(request_id=name, task=_TASK, kernel_code=job.code, settings=settings)
        try:
            return str(self._evaluator.evaluate(request).status)
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
        "concurrency": options.concurrency,
        "seconds": seconds,
        "wrong": wrong,
        "infra_errors": sum(status == "infra_error" for _, status in outcomes),
        "verdicts_per_s": {"before": speeds[0], "after": speeds[1], "change": speeds[1] / speeds[0] - 1},
        "statuses": {kind: dict(found) for kind, found in sorted(kinds.items())},
    }


def _inside(evaluator: Evaluator, folder: Path) -> dict[str, Any]:
    """What an evaluator holds while it has nothing to do."""
    own = evaluator.pids()
    return {
        "processes": len(_descendants(os.getpid())),
        "recorded_groups": len(list(folder.glob("*/groups/*"))),
        "files": sum(len(files) + len(folders) for _, folders, files in os.walk(folder)),
        "trusted_mib": sum(_resident(pid) for pid in own.values()) / MIB,
        "trusted_descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in own.values()),
    }


def _settled(evaluator: Evaluator, folder: Path, idle: dict[str, Any]) -> dict[str, Any]:
    """The same after a while in which the last of the killed may go."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        found = _inside(evaluator, folder)
        if all(found[what] <= idle[what] for what in ("processes", "recorded_groups")) or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _outside() -> dict[str, set[str]]:
    """Where files and memory that outlast a process would be."""
    shared = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {
        "temporary files": {entry.name for entry in Path(tempfile.gettempdir()).iterdir()},
        "shared memory": {entry.name for entry in Path("/dev/shm").iterdir()},
        "segments": {line.split()[1] for line in shared},
    }


def _faults(report: dict[str, Any]) -> list[str]:
    """What should not be, one line each; what lies outside is only told, as other programs put files there too."""
    idle, left = report["idle"], report["left"]
    faults = [f"wrong verdict on an honest one: {line}" for line in report["wrong"]]
    faults += [f"{report['infra_errors']} without a verdict"] * (report["infra_errors"] > 0)
    for what, allowed in _GROWTH.items():
        if left[what] > idle[what] + allowed:
            faults.append(f"{what}: {left[what]:.0f} left, {idle[what]:.0f} before")
    return faults + ["the evaluator's folder is still there"] * report["folder_left"]


def render(report: dict[str, Any]) -> str:
    """A line on what ran where, a row for each figure, and a row for each kind with its verdicts."""
    idle, left, speed = report["idle"], report["left"], report["verdicts_per_s"]
    head = (
        f"{report['machine']['cores']} cores, load {report['machine']['load']:.1f}; {report['hostile']} hostile "
        f"candidates and {report['honest']} honest ones, {report['concurrency']} at once, in "
        f"{report['seconds']:.0f} s.\n"
    )
    figures = [
        ("honest verdicts that were wrong", f"{len(report['wrong'])} of {report['honest']}", "0"),
        ("candidates without a verdict", str(report["infra_errors"]), "0"),
        (
            "honest verdicts a second, before and after",
            f"{speed['before']:.2f}, {speed['after']:.2f} ({speed['change']:+.1%})",
            "within 10 %",
        ),
        *((f"{_WORDS[what]}, before and after", f"{idle[what]:.0f}, {left[what]:.0f}", "as before") for what in _WORDS),
        ("faults", "; ".join(report["faults"]) or "none", "none"),
    ]
    rows = [f"| {what} | {measured} | {goal} |" for what, measured, goal in figures]
    kinds = [
        f"| {kind} | {', '.join(f'{status} {count}' for status, count in sorted(found.items()))} |"
        for kind, found in report["statuses"].items()
    ]
    return "\n".join(
        [head, "| | measured | goal |", "|---|---|---|", *rows, "", "| candidates | verdicts |", "|---|---|", *kinds]
    )


def _write(path: Path, report: dict[str, Any]) -> None:
    """Replaces what stands between the marks, or appends it with them."""
    put_between(path, BEGIN, END, render(report))


def _descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    level = {root}
    while level := {pid for pid, parent in parents.items() if parent in level}:
        found |= level
    return found


def _available() -> int:
    """Bytes of memory that programs can still have."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def _resident(pid: int) -> int:
    """Bytes of memory that a process of ours has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abuse", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--candidates", type=int, default=2000, help="hostile ones; a quarter as many honest are mixed in"
    )
    parser.add_argument("--honest", type=int, default=60, help="honest ones alone, before and after")
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds per phase for hostile ones")
    parser.add_argument("--seed", type=int, help="of the order; printed")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--document", type=Path, help="Markdown file that gets the table")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
