"""A run of the command whose words can be read while it goes on, and what must hold after any run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from kb_ray.bench.sweep import base_dir
from kb_ray.process_identity import born
from kb_ray.records import Turn
from kb_ray.traces.run import read_run
from kb_ray.traces.store import LocalStore, open_store
from kb_ray.traces.views import episodes
from tests.fixtures_head import Head, ray_command
from tests.fixtures_run import ROOT, Workload, rows_by_task
from tests.processes import alive

PATIENCE_S = 600.0
"""Nothing here is about speed: machines may be busy."""
_NODE = "RAY_RAYLET_PID="
KILLED = frozenset({"crash"})
"""Verdict on a candidate that somebody else killed."""


def row_by_row(
    workload: Workload, output: str, *, url: str = "", n_correctness: int = 20, save_interval: int = 1
) -> list[str]:
    """Flags of a run that keeps each episode as it ends; 20 input sets make it last. All are asked about at once, so
    that questions which a model holds back leave room for the others."""
    each = ("--save-interval", str(save_interval), "--batch-size", str(len(workload.task_ids)))
    return workload.arguments(output, *each, url=url, n_correctness=n_correctness)


class Run:
    """`python -m kb_ray.generate`, with what it prints in a file."""

    def __init__(self, arguments: list[str], log: Path, env: Mapping[str, str], before: Sequence[str] = ()) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "kb_ray.generate", *arguments],
                stdout=out, stderr=out, cwd=ROOT, env={**os.environ, **env},
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, reached: Callable[[], bool], what: str) -> None:
        """Until `reached`. Fails the test where the run ends before, or takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"never came to {what} (exit code {self.process.poll()}):\n{self.said}")
            time.sleep(0.05)

    def wait_for_rows(self, output: str, count: int) -> None:
        self.wait_for(lambda: rows_by_task(output).total() >= count, f"{count} rows in {output}")

    def wait_for_words(self, words: str) -> None:
        self.wait_for(lambda: words in self.said, f"saying {words!r}")

    def end(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end:\n{self.said}")


@contextmanager
def running(arguments: list[str], log: Path, env: Mapping[str, str], before: Sequence[str] = ()) -> Iterator[Run]:
    """A run that does not outlive the test; its command is put behind `before`."""
    run = Run(arguments, log, env, before)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def wait_for_rows_of_job(head: Head, job: str, output: str, count: int) -> None:
    """Until a job that was submitted to `head` has written so many."""
    deadline = time.monotonic() + PATIENCE_S
    while rows_by_task(output).total() < count:
        assert time.monotonic() < deadline, ray_command(head, "job", "logs", job).stdout
        time.sleep(0.2)


def later(draw: random.Random, longest_s: float) -> None:
    """Waits for a drawn while. Where something of the run must be left then, its model holds some answers back."""
    time.sleep(draw.uniform(0, longest_s))


def run_id_of(output: str) -> str | None:
    run = read_run(open_store(output))
    return run.run_id if run else None


def check_sound(output: str, workload: Workload, allowed: frozenset[str] = frozenset()) -> None:
    """What is promised after any fault: the store is sound, each episode is there once and none is left to redo, and
    each candidate has its own verdict: the right ones `ok`, the wrong ones `mismatch`; or of one, one of `allowed`."""
    done = subprocess.run(
        [sys.executable, "-m", "kb_ray.verify", output, "--json"],
        capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["state"], found["missing"], found["to_redo"], found["repeated"]) == ("complete", [], 0, 0), (
        done.stdout
    )
    assert found["planned"] == found["episodes"] == len(workload.task_ids)
    kept = list(episodes(open_store(output)))
    assert sorted(episode.task.task_id for episode in kept) == sorted(workload.task_ids)
    others = [turn for episode in kept for turn in episode.turns if turn.verdict.status != _wanted(turn)]
    assert len(others) <= 1, others
    assert all(turn.verdict.status in allowed for turn in others), others


def _wanted(turn: Turn) -> str:
    code = turn.triton_code or ""
    return "ok" if "+ 1.0, mask" in code else "mismatch" if "+ 2.0, mask" in code else "no_code"


def command_lines(word: str) -> dict[int, str]:
    """Living processes of this machine, other than this one, whose command line has `word` in it."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in line:
                found[int(entry.name)] = line
    return found


def scratch_folders(run_id: str) -> list[Path]:
    """Folders of the bench workers of a run."""
    return list(base_dir().glob(f"kb-bench-{run_id}-*"))


def check_nothing_left(output: str, killed_writers: int = 0) -> None:
    """No process of the run, no folder of its workers, no half-written file but the one that each of so many drivers
    was at when it was killed: nothing reads it, and compaction removes it."""
    check_no_process_left(output)
    if "://" not in output:
        leftovers = LocalStore(output).leftovers()
        assert len(leftovers) <= killed_writers, leftovers


def check_no_process_left(output: str) -> None:
    """No process of the run, no folder of its workers. They may take a while to go."""
    run_id = run_id_of(output)
    assert run_id is not None
    deadline = time.monotonic() + 120
    while (processes := processes_of(output)) or scratch_folders(run_id):
        assert time.monotonic() < deadline, (processes, scratch_folders(run_id))
        time.sleep(0.5)


def processes_of(output: str) -> dict[int, str]:
    """Command lines of whatever lives of a run."""
    # Judges, zygotes and candidates have their run's name in their command line, drivers the output.
    return command_lines(run_id_of(output) or output) | command_lines(output) | _workers_of(output)


def _workers_of(output: str) -> dict[int, str]:
    """Ray's processes of bench workers, which do not show their run's name, that began after the run did; and of any
    worker whose node is gone, which should not outlive it."""
    run = read_run(open_store(output))
    began = datetime.fromisoformat(run.created_at).timestamp() if run else 0.0
    found = {}
    for pid, line in command_lines("ray::").items():
        with suppress(OSError, StopIteration):
            if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
                continue  # of a machine of a test's own, where numbers are others
            node = int(next(value for value in _environment(pid) if value.startswith(_NODE)).removeprefix(_NODE))
            if not alive(node) or (line.startswith("ray::BenchActor") and _began(pid) > began):
                found[pid] = line
    return found


def _environment(pid: int) -> list[str]:
    return (Path("/proc") / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")


def _began(pid: int) -> float:
    """When a process began, as seconds since 1970."""
    ticks = born(pid) or 0
    return time.time() - time.monotonic() + ticks / os.sysconf("SC_CLK_TCK")


def kill(pid: int) -> bool:
    """SIGKILL; whether there was such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
