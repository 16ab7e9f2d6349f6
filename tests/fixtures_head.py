"""Ray's own head with a token, started by `ray start --head` in folders of its own.

Knows no test. No other cluster of this machine sees it, and nothing of it outlives the session.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Head:
    """A running head: its address, its dashboard, and a home folder that has its token."""

    address: str
    dashboard: str
    home: Path
    group: int
    """Process group of everything that the head started, jobs apart."""

    def environment(self) -> dict[str, str]:
        """For a process on this machine that uses the head."""
        return clean_environment(self.home) | {"RAY_AUTH_MODE": "token", "RAY_API_SERVER_ADDRESS": self.dashboard}


@pytest.fixture(scope="session")
def head() -> Iterator[Head]:
    with started_head() as head:
        yield head


@contextmanager
def started_head(before: Sequence[str] = ()) -> Iterator[Head]:
    """A head of its own, its command behind `before`. Its process group may be killed meanwhile."""
    # Not below pytest's folder: Ray's socket paths must stay under 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="kb-head-"))
    home = with_token(folder / "home", "right" * 8)
    port, dashboard = free_port(), free_port()
    command = [
        *(*before, sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"),
        *(f"--temp-dir={folder / 'ray'}", "--num-cpus=3", "--object-store-memory=80000000"),
        *("--include-dashboard=true", f"--dashboard-port={dashboard}", "--disable-usage-stats"),
        # Ray's default is one fixed port: beside another cluster the agent would not come up, and no job start.
        *(f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}"),
    ]
    log = (folder / "log").open("w")
    environment = clean_environment(home) | {"RAY_AUTH_MODE": "token"}
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        wait_until_up(process, folder / "log")
        yield Head(f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}", home, process.pid)
    finally:
        # Ray's own processes stay in the group, so that nothing outlives this.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def ray_command(
    head: Head, *arguments: str, timeout_s: float = 240, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`ray ...` against the head."""
    return subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", *arguments],
        capture_output=True, text=True, cwd=ROOT, env={**head.environment(), **(env or {})}, timeout=timeout_s,
        check=False,
    )  # fmt: skip


def submit(head: Head, identity: str, arguments: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    """`python -m kb_ray.generate` as a job; `more` are flags of `ray job submit`."""
    # The head's agent comes up some seconds after the head says that it runs.
    deadline = time.monotonic() + 300
    while "No available agent" in (tried := _try_submit(head, identity, arguments, *more)).stderr:
        assert time.monotonic() < deadline, tried.stderr
        time.sleep(2)
    return tried


def _try_submit(head: Head, identity: str, arguments: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    entry = f"{shlex.quote(sys.executable)} -m kb_ray.generate {shlex.join(arguments)}"
    return ray_command(
        head, "job", "submit", "--submission-id", identity, "--working-dir", str(ROOT),
        "--runtime-env", "jobs/runtime_env.yaml", "--metadata-json", json.dumps({"run": identity}), *more,
        "--", *shlex.split(entry),
    )  # fmt: skip


def with_token(home: Path, token: str) -> Path:
    """`home` with a token file as Ray looks for it."""
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(token)
    return home


def clean_environment(home: Path) -> dict[str, str]:
    """This process's environment without anything that Ray or kb_ray reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "KB_RAY_"))}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def wait_until_up(process: subprocess.Popen[bytes], log: Path) -> None:
    """Until `ray start` has written to its log that the head runs."""
    end = time.monotonic() + 300
    while "Ray runtime started" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)
