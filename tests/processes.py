"""Processes of this machine as /proc shows them: who lives, who descends from whom.

A process that ends meanwhile is left out.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """(name, the fields behind it: state, parent, group, session, ...)."""
    try:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    return head.partition("(")[2], rest.split()


def _all() -> dict[int, tuple[str, list[str]]]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: found for pid in pids if (found := _stat(pid)) is not None}


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    found = _stat(pid)
    return found is not None and found[1][0] != "Z"


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU time that these have used so far."""
    ticks = (sum(map(int, found[1][11:13])) for pid in pids if (found := _stat(pid)) is not None)
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def session_of(leader: int) -> dict[int, str]:
    """Names of the living processes of a session, by process id."""
    return {pid: name for pid, (name, fields) in _all().items() if int(fields[3]) == leader and fields[0] != "Z"}


def descendants(root: int, deeper_than: int = 0) -> set[int]:
    """Children of `root`, their children and so on; `deeper_than` 1 leaves out the children themselves."""
    parents = {pid: int(fields[1]) for pid, (_, fields) in _all().items()}
    found: set[int] = set()
    level = {root}
    depth = 0
    while level := {pid for pid, parent in parents.items() if parent in level}:
        depth += 1
        if depth > deeper_than:
            found |= level
    return found


def end_group(leader: subprocess.Popen[bytes]) -> None:
    """Kills the process group that `leader` began, whether or not it still lives, and waits for the leader."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait(60)


def outcome(process: subprocess.Popen[str], timeout_s: float) -> tuple[int, str]:
    """(exit code, everything it printed) of a command that must end in time."""
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        pytest.fail(f"the command did not end within {timeout_s:.0f} s:\n{out}")
    return process.returncode, out
