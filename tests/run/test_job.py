"""The run as a Ray job on a cluster with token authentication: stopped in the middle, submitted again, watched."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.running import PATIENCE_S, check_nothing_left, later, row_by_row, wait_for_rows_of_job
from tests.fixtures_head import Head, ray_command, submit
from tests.fixtures_run import check_exactly_once, make_workload, rows_by_task
from tests.scraping import discovered, fetch


def test_a_stopped_job_keeps_what_is_finished_and_the_next_one_does_the_rest(
    draw: random.Random, head: Head, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 18), str(tmp_path / "out")
    first, second = (f"{name}-{tmp_path.name}" for name in ("first", "second"))
    with served(ErraticModel(draw, at_first=14)) as model:
        arguments = row_by_row(workload, output, url=model.url, save_interval=2)
        submitted = submit(head, first, arguments, "--no-wait")
        assert submitted.returncode == 0, submitted.stdout + submitted.stderr
        wait_for_rows_of_job(head, first, output, 2)
        later(draw, 3.0)
        stopped = ray_command(head, "job", "stop", first)
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
        logs = ray_command(head, "job", "logs", first).stdout
        assert "SIGTERM" in logs, logs
        actors = json.loads(ray_command(head, "list", "actors", "--format", "json").stdout)
        assert any(actor["name"].startswith("kb-bench-") for actor in actors), actors
        assert 2 <= rows_by_task(output).total() < len(workload.task_ids)

        model.go_on()
        again = submit(head, second, arguments)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "success_untimed" in again.stdout
    check_exactly_once(output, workload)
    check_nothing_left(output)


def test_prometheus_finds_the_numbers_of_a_job_by_the_file_that_ray_writes_for_it(head: Head, tmp_path: Path) -> None:
    temporary = head.home.parent / "ray"
    assert (temporary / "session_latest" / "metrics" / "prometheus" / "prometheus.yml").is_file()
    workload, output = make_workload(tmp_path, 4), str(tmp_path / "out")
    # It is not over until it is stopped.
    with served(ErraticModel(random.Random(0), at_first=2)) as model:
        submitted = submit(head, "watched", workload.arguments(output, url=model.url), "--no-wait")
        assert submitted.returncode == 0, submitted.stdout + submitted.stderr
        deadline = time.monotonic() + PATIENCE_S
        while "ray_kb_ray_verdicts_total" not in {sample.name for sample in fetch(discovered(temporary))}:
            if time.monotonic() > deadline:
                pytest.fail(ray_command(head, "job", "logs", "watched").stdout)
            time.sleep(3)
        assert ray_command(head, "job", "stop", "watched").returncode == 0
