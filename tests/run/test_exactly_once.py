"""Whatever is killed in the middle of a run, running it again ends with every episode exactly once."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.running import check_nothing_left, later, row_by_row, running
from tests.fixtures_run import Command, check_exactly_once, make_workload
from tests.fixtures_s3 import S3Server


def test_sigterm_flushes_what_is_finished_and_says_how_to_go_on(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 16), str(tmp_path / "out")
    with served(ErraticModel(draw, at_first=12)) as model:
        arguments = row_by_row(workload, output, url=model.url, save_interval=2)
        with running(arguments, tmp_path / "log", command.env) as run:
            run.wait_for_rows(output, 2 * draw.randint(1, 3))
            later(draw, 0.5)
            run.process.send_signal(signal.SIGTERM)
            assert run.end() == 128 + signal.SIGTERM, run.said
            assert "SIGTERM" in run.said
        model.go_on()
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
    with served(ErraticModel(draw, at_first=6)) as model:
        arguments = row_by_row(workload, output, url=model.url, n_correctness=2)
        with running(arguments, tmp_path / "log", command.env | s3_server.env) as run:
            run.wait_for_rows(output, draw.randint(1, 5))
            s3_server.kill()
            model.go_on()
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
