"""The benchmark of a killed worker ends what it started, also where a measurement fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import killed_worker

Start = Callable[[str], Path]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """In place of a run: a process that writes nothing, its number left in a file."""
    number = tmp_path / "pid"

    def start(before: str) -> Path:
        script = tmp_path / "run"
        script.write_text(f"#!/bin/sh\n{before}\necho $$ > {number}.part\nmv {number}.part {number}\nexec sleep 600\n")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        return number

    monkeypatch.setattr(killed_worker, "_PATIENCE_S", 1.0)
    monkeypatch.setattr(killed_worker, "_STOPPING_S", 1.0)
    return start


@pytest.mark.parametrize("before", ["", "trap '' TERM"])
@pytest.mark.parametrize(("kill_after", "raised"), [(3, SystemExit), (None, subprocess.TimeoutExpired)])
def test_a_run_does_not_outlive_its_measurement(
    tmp_path: Path, started: Start, before: str, kill_after: int | None, raised: type[BaseException]
) -> None:
    number = started(before)
    with pytest.raises(raised):
        killed_worker.measure(tmp_path, "one", 1, kill_after)
    pid = int(number.read_text())
    try:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
