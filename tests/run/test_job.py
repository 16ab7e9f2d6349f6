"""The run as a Ray job on a cluster with token authentication: stopped in the middle, submitted again, watched."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures_head import ROOT, Head
from tests.fixtures_run import check_exactly_once, make_workload, rows_by_task
from tests.scraping import discovered, fetch


def _ray(head: Head, *arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", *arguments],
        capture_output=True, text=True, cwd=ROOT, env=head.environment(), timeout=timeout_s, check=False,
    )  # fmt: skip


def _submit(head: Head, identity: str, arguments: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    # The head's agent comes up some seconds after the head says that it runs.
    deadline = time.monotonic() + 90
    while "No available agent" in (tried := _try_submit(head, identity, arguments, *more)).stderr:
        assert time.monotonic() < deadline, tried.stderr
        time.sleep(2)
    return tried


def _try_submit(head: Head, identity: str, arguments: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    entry = f"{shlex.quote(sys.executable)} -m kb_ray.generate {shlex.join(arguments)}"
    return _ray(
        head, "job", "submit", "--submission-id", identity, "--working-dir", str(ROOT),
        "--runtime-env", "jobs/runtime_env.yaml", "--metadata-json", json.dumps({"run": identity}), *more,
        "--", *shlex.split(entry),
    )  # fmt: skip


def test_a_stopped_job_keeps_what_is_finished_and_the_next_one_does_the_rest(head: Head, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 24), str(tmp_path / "out")
    arguments = workload.arguments(output, "--save-interval", "2", "--batch-size", "1", n_correctness=20)
    submitted = _submit(head, "first", arguments, "--no-wait")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    deadline = time.monotonic() + 150
    while rows_by_task(output).total() < 2:
        if time.monotonic() > deadline:
            pytest.fail(_ray(head, "job", "logs", "first").stdout)
        time.sleep(0.2)
    stopped = _ray(head, "job", "stop", "first")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    logs = _ray(head, "job", "logs", "first").stdout
    assert "SIGTERM" in logs, logs
    actors = json.loads(_ray(head, "list", "actors", "--format", "json").stdout)
    assert any(actor["name"].startswith("kb-bench-") for actor in actors), actors
    kept = rows_by_task(output).total()
    assert 2 <= kept < 24

    again = _submit(head, "second", arguments)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "success_untimed" in again.stdout
    check_exactly_once(output, workload)


def test_prometheus_finds_the_numbers_of_a_job_by_the_file_that_ray_writes_for_it(head: Head, tmp_path: Path) -> None:
    temporary = head.home.parent / "ray"
    assert (temporary / "session_latest" / "metrics" / "prometheus" / "prometheus.yml").is_file()
    workload, output = make_workload(tmp_path, 24), str(tmp_path / "out")
    submitted = _submit(head, "watched", workload.arguments(output, n_correctness=20), "--no-wait")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    deadline = time.monotonic() + 200
    while "ray_kb_ray_verdicts_total" not in {sample.name for sample in fetch(discovered(temporary))}:
        if time.monotonic() > deadline:
            pytest.fail(_ray(head, "job", "logs", "watched").stdout)
        time.sleep(3)
    assert _ray(head, "job", "stop", "watched").returncode == 0
