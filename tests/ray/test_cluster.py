"""Joining a real cluster with token authentication: with the right token, a wrong one, and none.

Each try is a process of its own, since what Ray finds when it is imported is what counts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures_head import Head, clean_environment, with_token

ROOT = Path(__file__).parents[2]
JOIN = """
import sys
from kb_ray import cluster
found = cluster.connect("run-7", sys.argv[1])
from ray._raylet import GcsClient
jobs = GcsClient(address=found.address).get_all_job_info()
print(found.joined, found.cpus, [dict(job.config.metadata).get(cluster.RUN_ID_KEY) for job in jobs.values()])
cluster.disconnect()
"""


def run(home: Path, *argv: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, cwd=cwd, env=clean_environment(home), timeout=60
    )


def test_the_run_id_is_in_the_metadata_of_the_job(head: Head) -> None:
    done = run(head.home, "-c", JOIN, head.address)
    # Other tests' jobs may stand beside it.
    assert done.stdout.startswith("True 3 ["), done.stderr
    assert "'run-7'" in done.stdout


@pytest.mark.parametrize(("token", "problem"), [(None, "needs a token and there is none"), ("wrong" * 8, "refuses")])
def test_a_missing_or_wrong_token_is_one_line_at_once(
    head: Head, tmp_path: Path, token: str | None, problem: str
) -> None:
    home = with_token(tmp_path / "home", token) if token else tmp_path
    work = tmp_path / "work"
    work.mkdir()
    command = ["-m", "kb_ray.generate", "--tasks", "builtin", "--model", "scripted", "--device", "cpu"]
    began = time.monotonic()
    done = run(home, *command, "--ray-address", head.address, cwd=work)
    assert time.monotonic() - began < 20
    assert done.returncode == 2
    assert problem in done.stderr
    assert "ray get-auth-token" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(work.iterdir()) == []
