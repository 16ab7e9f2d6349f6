"""The cluster itself fails: its head dies and the job is submitted to another one, or its object store is full."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.machine import own_processes
from tests.chaos.running import (
    PATIENCE_S,
    check_nothing_left,
    check_sound,
    command_lines,
    later,
    row_by_row,
    running,
    wait_for_rows_of_job,
)
from tests.fixtures_chaos import ONLY_IN_CHAOS
from tests.fixtures_head import Head, ray_command, started_head, submit
from tests.fixtures_ray import OBJECT_STORE_BYTES
from tests.fixtures_run import Command, make_workload, rows_by_task


def _lost(head: Head, output: str) -> None:
    """The node is gone, with all that ran on it."""
    os.killpg(head.group, signal.SIGKILL)


def _shut_down(head: Head, output: str) -> None:
    """A machine that is shut down tells its processes first, and does not wait for long."""
    for signalled in (signal.SIGTERM, signal.SIGKILL):
        # The job's processes have groups of their own.
        for pid in command_lines(output):
            with suppress(ProcessLookupError):
                os.kill(pid, signalled)
        with suppress(ProcessLookupError):
            os.killpg(head.group, signalled)
        time.sleep(10)


def _taken_down(head: Head, output: str) -> None:
    """Ray's own `ray down`: it has `ray stop` run on the node, then the node terminated.

    Ray's processes are told (SIGTERM), the job's are not: they lose their cluster, and then their machine."""
    file = head.home / "cluster.yaml"
    file.write_text(json.dumps(_cluster(head.group)))
    # It keeps what it has read of the file in the folder for temporary files.
    down = ray_command(head, "down", "--yes", str(file), env={"TMPDIR": str(head.home)})
    assert down.returncode == 0, down.stdout + down.stderr
    # On a busy machine `ray stop` has to kill some, and says so.
    stopped = r"Stopped (all \d+|only \d+ out of \d+) Ray processes"
    for step in (stopped, f"terminating {head.group}", "No nodes remaining"):
        assert re.search(step, down.stdout), down.stdout + down.stderr


def _cluster(pid: int) -> dict[str, object]:
    return {
        "cluster_name": "one-node", "max_workers": 0, "auth": {"ssh_user": "nobody"}, "head_node_type": "head",
        # By its name: what imports it imports Ray.
        "provider": {"type": "external", "module": "tests.chaos.one_node.OneNode", "pid": pid},
        "available_node_types": {"head": {"resources": {"CPU": 3}, "node_config": {}}},
        # Of a provider of one's own Ray fills in none of these.
        "file_mounts": {}, "cluster_synced_files": [], "setup_commands": [], "initialization_commands": [],
        "head_setup_commands": [], "worker_setup_commands": [], "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "end"),
    [
        pytest.param(list, _lost, id="lost"),
        pytest.param(list, _shut_down, id="shut-down", marks=ONLY_IN_CHAOS),
        pytest.param(partial(own_processes, stays=True), _taken_down, id="taken-down", marks=ONLY_IN_CHAOS),
    ],
)
def test_a_job_whose_head_ended_is_finished_in_a_new_cluster(
    machine: Callable[[], list[str]], end: Callable[[Head, str], None], draw: random.Random, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 18), str(tmp_path / "out")
    with served(ErraticModel(draw, at_first=14)) as model:
        arguments = row_by_row(workload, output, url=model.url)
        with started_head(machine()) as first:
            submitted = submit(first, "first", arguments, "--no-wait")
            assert submitted.returncode == 0, submitted.stdout + submitted.stderr
            wait_for_rows_of_job(first, "first", output, draw.randint(1, 5))
            later(draw, 2.0)
            end(first, output)
            deadline = time.monotonic() + PATIENCE_S
            while processes := command_lines(output):
                assert time.monotonic() < deadline, processes
                time.sleep(0.5)
        assert 0 < rows_by_task(output).total() < len(workload.task_ids)
        model.go_on()
        with started_head() as second:
            again = submit(second, "second", arguments)
            assert again.returncode == 0, again.stdout + again.stderr
            check_sound(output, workload)
            check_nothing_left(output, killed_writers=1)


# It takes a minute to be sure.
@ONLY_IN_CHAOS
def test_a_run_whose_cluster_ends_beneath_it_says_so_and_goes_on_in_another(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 18), str(tmp_path / "out")
    with served(ErraticModel(draw, at_first=14)) as model:
        arguments = row_by_row(workload, output, url=model.url)
        with started_head() as head:
            joined = head.environment() | {"RAY_ADDRESS": head.address}
            with running(arguments, tmp_path / "log", joined) as run:
                run.wait_for_rows(output, draw.randint(1, 5))
                later(draw, 2.0)
                os.killpg(head.group, signal.SIGKILL)
                assert run.end() == 1, run.said
                said = run.said
        gone = r"stopped:   the Ray cluster at \S+ is gone: .*; start the same command again to go on"
        assert re.search(gone, said), said
        model.go_on()
        with running(arguments, tmp_path / "again", command.env) as again:
            assert again.end() == 0, again.said
    check_sound(output, workload)
    check_nothing_left(output)


def test_a_full_object_store_is_no_obstacle(draw: random.Random, command: Command, tmp_path: Path) -> None:
    import numpy as np
    import ray
    from ray._private.internal_api import memory_summary

    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    block = OBJECT_STORE_BYTES // 10
    with (
        served(ErraticModel(draw, at_first=6)) as model,
        running(row_by_row(workload, output, url=model.url), tmp_path / "log", command.env) as run,
    ):
        run.wait_for_rows(output, draw.randint(1, 4))
        # In use, half as much again as there is room for: what is only kept could go to disk.
        held = [ray.put(np.full(block, number, dtype=np.uint8)) for number in range(15)]
        used = [ray.get(one) for one in held]
        summary = memory_summary(command.env["RAY_ADDRESS"], stats_only=True)
        assert "Plasma filesystem mmap usage" in summary, f"there was room for all:\n{summary}"
        model.go_on()
        assert run.end() == 0, run.said
        assert [int(one[0]) for one in used] == list(range(15))
    check_sound(output, workload)
    check_nothing_left(output)
