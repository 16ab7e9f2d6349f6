"""Runs on a cluster that starts without any bench node: nodes come for the queue, may die in mid-verdict, and go."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.chaos.running import check_nothing_left, later
from tests.fixtures_autoscaling import MOST_NODES, NODE_CPUS, Autoscaled
from tests.fixtures_run import Command, Workload, check_exactly_once, make_workload
from tests.processes import alive, descendants

EPISODES = 12


def _start(cluster: Autoscaled, workload: Workload, output: str) -> subprocess.Popen[str]:
    elastic = (
        *("--bench-workers", f"0:{MOST_NODES}", "--bench-cpus", str(NODE_CPUS)),
        *("--bench-idle", "2", "--bench-concurrency", "1", "--batch-size", "12"),
    )
    return Command().start(workload.arguments(output, *elastic, n_correctness=20), cluster.environment())


def _until(condition: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 600) -> None:
    """Waits for the condition; a run that ends before, or that takes too long, is shown."""
    end = time.monotonic() + seconds
    while not condition():
        if run.poll() is not None or time.monotonic() > end:
            run.kill()
            raise AssertionError(run.communicate()[0])
        time.sleep(0.1)


def test_nodes_come_for_a_run_and_go_after_it_and_every_episode_is_there_once(
    autoscaled: Autoscaled, tmp_path: Path
) -> None:
    assert autoscaled.bench_nodes() == []
    workload, output = make_workload(tmp_path, EPISODES), str(tmp_path / "out")
    run = _start(autoscaled, workload, output)
    _until(lambda: len(autoscaled.bench_nodes()) == MOST_NODES, run)
    _until(lambda: all(map(autoscaled.candidates_on, autoscaled.bench_nodes())), run)
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 0, said
    check_exactly_once(output, workload)
    end = time.monotonic() + 300
    while autoscaled.bench_nodes():
        assert time.monotonic() < end, "the nodes stay although nothing runs on them"
        time.sleep(0.2)


def test_a_node_that_is_lost_in_mid_verdict_costs_no_episode_and_doubles_none(
    draw: random.Random, autoscaled: Autoscaled, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, EPISODES), str(tmp_path / "out")
    run = _start(autoscaled, workload, output)
    working: list[int] = []

    def somebody_works() -> bool:
        working[:] = [node for node in autoscaled.bench_nodes() if autoscaled.candidates_on(node)]
        return bool(working)

    _until(somebody_works, run)
    later(draw, 1.0)
    _until(somebody_works, run)
    lost = {working[0], *descendants(working[0])}
    for pid in draw.choice(([working[0]], sorted(lost))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 0, said
    check_exactly_once(output, workload)
    check_nothing_left(output)
    end = time.monotonic() + 300
    while left := [pid for pid in lost if alive(pid)]:
        assert time.monotonic() < end, f"what the node ran outlives it: {left}"
        time.sleep(0.5)
