"""Joining a real cluster with token authentication: with the right token, a wrong one, and none.

Each try is a process of its own, since what Ray finds when it is imported is what counts.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

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


@dataclass(frozen=True)
class Head:
    """A head node started for this file, and a home folder that has its token."""

    address: str
    home: Path


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """Ray's own head with a token, in folders of its own: no other cluster of this machine sees it."""
    # Not below pytest's folder: Ray's socket paths must stay under 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="kb-head-"))
    home = with_token(folder / "home", "right" * 8)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"),
        *(f"--temp-dir={folder / 'ray'}", "--num-cpus=3", "--object-store-memory=80000000"),
        *("--include-dashboard=false", "--disable-usage-stats"),
    ]
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        command, stdout=log, stderr=log, start_new_session=True, env=environment(home) | {"RAY_AUTH_MODE": "token"}
    )
    try:
        wait_until_up(port, process, folder / "log")
        yield Head(f"127.0.0.1:{port}", home)
    finally:
        # Ray's own processes stay in the group, so that nothing outlives this.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def with_token(home: Path, token: str) -> Path:
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(token)
    return home


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "KB_RAY_"))}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT)}


def wait_until_up(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 90
    while "Ray runtime started" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def run(home: Path, *argv: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, cwd=cwd, env=environment(home), timeout=60
    )


def test_the_run_id_is_in_the_metadata_of_the_job(head: Head) -> None:
    done = run(head.home, "-c", JOIN, head.address)
    assert done.stdout == "True 3 ['run-7']\n", done.stderr


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
