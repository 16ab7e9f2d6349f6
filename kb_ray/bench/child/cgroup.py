"""Bounds kept by the kernel: one cgroup (version 2) for each sandboxed process, where a subtree is ours.

Finds a subtree in which memory and tasks can be bounded: the one that KB_BENCH_CGROUP names, else the cgroup
this process is in. Where there is none, `find` says so by None and the watchdog does the work. Knows
nothing of verdicts.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

VARIABLE = "KB_BENCH_CGROUP"
"""Environment variable: path of a cgroup v2 folder that was delegated to the evaluator and holds no process."""
NEEDED = ("memory", "pids")
_GONE_S = 2.0


class Cgroup:
    """The cgroup of one child. Errors of the kernel are OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def bound(self, memory_bytes: int, tasks: int) -> None:
        """Let the kernel kill all of it at once when it needs more memory, and refuse more tasks."""
        self._write("memory.max", memory_bytes)
        self._write("memory.oom.group", 1)
        with contextlib.suppress(OSError):  # absent where swap is not accounted
            self._write("memory.swap.max", 0)
        self._write("pids.max", tasks)

    def add(self, pid: int) -> None:
        """Move a process in; what it starts later is born here."""
        self._write("cgroup.procs", pid)

    def ran_out_of_memory(self) -> bool:
        return _event(self.path / "memory.events", "oom_kill") > 0

    def kill(self) -> None:
        """SIGKILL to everything in it, forks under way included."""
        self._write("cgroup.kill", 1)

    def remove(self) -> bool:
        """Whether it became empty within two seconds, and was removed."""
        end = time.monotonic() + _GONE_S
        while True:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return True
            except OSError:
                if time.monotonic() > end:
                    return False
                time.sleep(0.005)
            else:
                return True

    def _write(self, name: str, value: int) -> None:
        with open(self.path / name, "w") as file:
            file.write(str(value))


def confine(folder: Path | None, name: str, pid: int, memory_bytes: int, tasks: int) -> Cgroup | None:
    """A cgroup `name` in `folder` with `pid` in it and its bounds set; None where it cannot be had."""
    if folder is None:
        return None
    cgroup = None
    try:
        cgroup = Cgroup(folder / name)
        cgroup.bound(memory_bytes, tasks)
        cgroup.add(pid)
    except OSError:
        if cgroup is not None:
            cgroup.remove()
        return None
    return cgroup


def find(needed: tuple[str, ...] = NEEDED) -> Path | None:
    """A new folder of ours below a cgroup that bounds what is `needed`; None where there is none to be had."""
    parent = _delegated()
    if parent is None:
        return None
    try:
        available = set((parent / "cgroup.subtree_control").read_text().split())
        missing = [f"+{name}" for name in needed if name not in available]
        if missing:
            # Refused where the cgroup holds processes itself, which is the usual case without delegation.
            (parent / "cgroup.subtree_control").write_text(" ".join(missing))
        _remove_empty(parent)
        own = parent / f"kb_ray-{os.getpid()}"
        own.mkdir()
        if needed:
            (own / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in needed))
    except OSError:
        return None
    return own


def own_cgroup(cgroup: str, mounts: str) -> Path | None:
    """From /proc/self/cgroup and /proc/self/mountinfo: the version 2 cgroup of this process."""
    inside = next((line[3:] for line in cgroup.splitlines() if line.startswith("0::")), None)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if inside is not None and after.split(" ")[0] == "cgroup2":
            root, point = before.split(" ")[3:5]
            if inside == root or inside.startswith(root.rstrip("/") + "/"):
                return Path(point) / inside[len(root.rstrip("/")) :].lstrip("/")
    return None


def _delegated() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    try:
        return own_cgroup(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return None


def _remove_empty(parent: Path) -> None:
    """What killed judges left, as far as nothing runs in it."""
    for folder in parent.glob("kb_ray-*"):
        owner = folder.name.partition("-")[2]
        for path in () if os.path.exists(f"/proc/{owner}") else (*folder.glob("*/"), folder):
            with contextlib.suppress(OSError):
                path.rmdir()


def _event(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, count = line.partition(" ")
            if key == name:
                return int(count)
    return 0
