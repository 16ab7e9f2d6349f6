"""Whatever is killed in the middle of a run, running it again ends with every episode exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.chaos.running import check_nothing_left, later, running
from tests.fixtures_run import Command, check_exactly_once, make_workload, rows_by_task
from tests.fixtures_s3 import S3Server


def _wait_for_rows(output: str, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        if rows_by_task(output).total() >= count:
            return
        time.sleep(0.1)
    process.kill()
    pytest.fail(f"never saw {count} rows in {output}:\n{process.communicate()[0]}")


def test_sigterm_flushes_what_is_finished_and_says_how_to_go_on(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 16), str(tmp_path / "out")
    arguments = workload.arguments(output, "--save-interval", "2", "--batch-size", "1", n_correctness=20)
    process = command.start(arguments)
    _wait_for_rows(output, 2 * draw.randint(1, 3), process)
    later(draw, 0.5, output, rows=8)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, out
    assert "SIGTERM" in out
    code, out = command.run(arguments)
    assert code == 0, out
    check_exactly_once(output, workload)
    check_nothing_left(output)


def test_s3_server_killed_and_restarted_during_the_run(
    draw: random.Random, command: Command, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    workload, output = make_workload(tmp_path, 10), f"s3://{s3_server.bucket}/runs/{tmp_path.name}-{os.getpid()}"
    arguments = workload.arguments(output, "--save-interval", "1", "--batch-size", "2")
    with running(arguments, tmp_path / "log", command.env | s3_server.env) as run:
        run.wait_for_rows(output, draw.randint(1, 5))
        s3_server.kill()
        run.wait_for_words("trying on")
        later(draw, 8.0)
        s3_server.start()
        assert run.end() == 0, run.said
        assert "takes writes again" in run.said
    check_exactly_once(output, workload)
    check_nothing_left(output)
    code, out = command.run(arguments, s3_server.env)
    assert code == 0
    assert "nothing to do" in out


def test_another_run_cannot_be_mixed_into_a_store(command: Command, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 1), str(tmp_path / "out")
    code, out = command.run(workload.arguments(output))
    assert code == 0, out
    code, out = command.run(workload.arguments(output, "--temperature", "0.3"))
    assert code == 2
    assert "temperature" in out
