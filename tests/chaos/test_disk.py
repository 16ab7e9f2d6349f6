"""A folder on a disk that fills up in mid-run: the run waits, says so, and goes on once there is room."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.running import check_nothing_left, check_sound, later, row_by_row, running
from tests.fixtures_run import Command, make_workload, rows_by_task


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(path: Path) -> None:
    """Takes all the room that is left, also what a write of the run's that fails meanwhile gives back."""
    full = 0
    with path.open("ab", 0) as file:
        while full < 3:
            try:
                file.write(bytes(4096))
                full = 0
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                full += 1
                time.sleep(0.05)


def test_a_full_disk_holds_a_run_up_and_loses_nothing(
    draw: random.Random, command: Command, disk: Path, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 12), str(disk / "out")
    with served(ErraticModel(draw, at_first=6)) as model:
        arguments = row_by_row(workload, output, url=model.url, n_correctness=2)
        with running(arguments, tmp_path / "log", command.env) as run:
            run.wait_for_rows(output, draw.randint(1, 5))
            _fill(disk / "ballast")
            model.go_on()
            run.wait_for_words(os.strerror(errno.ENOSPC))
            later(draw, 30.0)
            assert run.process.poll() is None, run.said
            assert rows_by_task(output).total() < len(workload.task_ids)
            (disk / "ballast").unlink()
            assert run.end() == 0, run.said
            assert "takes writes again" in run.said
    check_sound(output, workload)
    check_nothing_left(output)
