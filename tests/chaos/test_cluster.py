"""The cluster itself fails: its head dies and the job is submitted to another one, or its object store is full."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.running import PATIENCE_S, check_nothing_left, check_sound, command_lines, later, running
from tests.fixtures_head import ray_command, started_head, submit
from tests.fixtures_ray import OBJECT_STORE_BYTES
from tests.fixtures_run import Command, make_workload, rows_by_task


def _lost(group: int, output: str) -> None:
    """The node is gone, with all that ran on it."""
    os.killpg(group, signal.SIGKILL)


def _taken_down(group: int, output: str) -> None:
    """As `ray down` ends a node: a machine that is shut down tells its processes first, and does not wait for long."""
    for signalled in (signal.SIGTERM, signal.SIGKILL):
        # The job's processes have groups of their own.
        for pid in command_lines(output):
            with suppress(ProcessLookupError):
                os.kill(pid, signalled)
        with suppress(ProcessLookupError):
            os.killpg(group, signalled)
        time.sleep(10)


@pytest.mark.parametrize("end", [_lost, _taken_down], ids=["lost", "taken-down"])
def test_a_job_whose_head_ended_is_finished_in_a_new_cluster(
    end: Callable[[int, str], None], draw: random.Random, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    arguments = workload.arguments(output, "--save-interval", "1", "--batch-size", "2", n_correctness=20)
    with started_head() as first:
        submitted = submit(first, "first", arguments, "--no-wait")
        assert submitted.returncode == 0, submitted.stdout + submitted.stderr
        wanted, deadline = draw.randint(1, 5), time.monotonic() + PATIENCE_S
        while rows_by_task(output).total() < wanted:
            assert time.monotonic() < deadline, ray_command(first, "job", "logs", "first").stdout
            time.sleep(0.2)
        later(draw, 2.0)
        end(first.group, output)
        while processes := command_lines(output):
            assert time.monotonic() < deadline, processes
            time.sleep(0.5)
    kept = rows_by_task(output)
    assert 0 < kept.total() < len(workload.task_ids)
    with started_head() as second:
        again = submit(second, "second", arguments)
        assert again.returncode == 0, again.stdout + again.stderr
        check_sound(output, workload)
        check_nothing_left(output)


def test_a_full_object_store_is_no_obstacle(draw: random.Random, command: Command, tmp_path: Path) -> None:
    import numpy as np
    import ray

    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    arguments = workload.arguments(output, "--save-interval", "1", "--batch-size", "2", n_correctness=20)
    block = OBJECT_STORE_BYTES // 10
    with running(arguments, tmp_path / "log", command.env) as run:
        wanted, deadline = draw.randint(1, 4), time.monotonic() + PATIENCE_S
        while rows_by_task(output).total() < wanted:
            assert time.monotonic() < deadline, run.said
            time.sleep(0.2)
        # Held on to, half as much again as there is room for.
        held = [ray.put(np.full(block, number, dtype=np.uint8)) for number in range(15)]
        assert rows_by_task(output).total() < len(workload.task_ids), "it was over before the store was full"
        assert run.end() == 0, run.said
        assert [int(ray.get(one)[0]) for one in held] == list(range(15))
    check_sound(output, workload)
    check_nothing_left(output)
