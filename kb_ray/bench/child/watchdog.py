"""Bounds on what one sandboxed process and all it starts may use: memory, tasks, scratch.

A thread samples every watched process group a few times a second and kills one that is over its bounds;
of a child that a cgroup bounds (`cgroup`) it watches the scratch folder only. It sees what /proc shows:
what a group allocates and gives back between two samples goes unseen. Decides no status and knows no
verdict; it leaves on the child what was exceeded.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from kb_ray.bench.sweep import kill_group

PERIOD_S = 0.2
_FILES_EVERY = 4
"""Samples from one look at files to the next: looking at them costs most."""
_STRIKES = 2
"""Samples in a row over the bound of memory: a process that is just being started counts its parent's twice."""
_GIB = 1 << 30


@dataclass(frozen=True)
class Bounds:
    """What a sandboxed process may use together with all that it starts."""

    memory_bytes: int
    """Beyond what it starts with: anonymous pages, shared pages, files in memory."""
    tasks: int
    """Processes and threads."""
    scratch_bytes: int
    scratch_files: int


@dataclass(frozen=True)
class Usage:
    """What was seen of one group at one moment, in the terms of `Bounds`."""

    memory_bytes: int = 0
    tasks: int = 0
    scratch_bytes: int = 0
    scratch_files: int = 0


@dataclass(frozen=True)
class Excess:
    """Which bound was passed, and the line that says so."""

    kind: Literal["memory", "tasks", "scratch"]
    message: str


def excess(usage: Usage, bounds: Bounds) -> Excess | None:
    """The first bound that `usage` is over."""
    if usage.memory_bytes > bounds.memory_bytes:
        return Excess(
            "memory", f"{usage.memory_bytes / _GIB:.1f} GiB of memory in use, {bounds.memory_bytes / _GIB:g} allowed"
        )
    if usage.tasks > bounds.tasks:
        return Excess("tasks", f"{usage.tasks} processes and threads at once, {bounds.tasks} allowed")
    if usage.scratch_bytes > bounds.scratch_bytes:
        held, allowed = usage.scratch_bytes / _GIB, bounds.scratch_bytes / _GIB
        return Excess("scratch", f"{held:.1f} GiB of temporary files, {allowed:g} allowed")
    if usage.scratch_files > bounds.scratch_files:
        return Excess("scratch", f"over {bounds.scratch_files} temporary files at once")
    return None


class Watched(Protocol):
    """What the watchdog needs of a child."""

    pid: int
    """Also the id of its process group, which it cannot leave."""
    scratch: Path
    excess: Excess | None
    """Set here before the group is killed."""

    @property
    def sampled(self) -> bool:
        """Whether nothing else bounds its memory and tasks."""
        ...

    @property
    def lent_bytes(self) -> int:
        """Shared memory that is not the child's own: mapped there, owned by the judge."""
        ...


class Watchdog:
    """Watches the children of one zygote, whose pid is `root`."""

    def __init__(self, root: int, bounds: Bounds) -> None:
        self._root, self._bounds = root, bounds
        self._watched: dict[int, Watched] = {}
        self._strikes: dict[int, int] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def watch(self, child: Watched) -> None:
        with self._changed:
            self._watched[child.pid] = child
            self._changed.notify()

    def forget(self, pid: int) -> None:
        """After this returns, the group is not killed from here any more."""
        with self._changed:
            self._watched.pop(pid, None)
            self._strikes.pop(pid, None)

    def _run(self) -> None:
        turn = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._watched))
                # Woken early by nobody: this is the period.
                self._changed.wait_for(lambda: False, PERIOD_S)
                children = list(self._watched.values())
            turn += 1
            sampled = any(child.sampled for child in children)
            groups = group_processes(self._root) if sampled else {}
            base = anonymous_bytes(self._root)
            for child in children:
                found = measure(
                    child, groups.get(child.pid, []) if child.sampled else [], base, turn % _FILES_EVERY == 0
                )
                self._judge(child, excess(found, self._bounds))

    def _judge(self, child: Watched, over: Excess | None) -> None:
        with self._changed:
            if self._watched.get(child.pid) is not child:
                return
            self._strikes[child.pid] = self._strikes.get(child.pid, 0) + 1 if over else 0
            if over is None or (over.kind == "memory" and self._strikes[child.pid] < _STRIKES):
                return
            child.excess = over
            kill_group(child.pid)


@dataclass(frozen=True)
class Process:
    pid: int
    threads: int


def measure(child: Watched, processes: Iterable[Process], base: int, files_too: bool) -> Usage:
    """What a group uses now. `base`: anonymous memory that each process of it was forked with. `files_too`: also
    what it keeps in its scratch folder and in open files without a name."""
    memory, tasks, held = 0, 0, dict[tuple[int, int], tuple[int, bool]]()
    device = _device(child.scratch)
    lent = child.lent_bytes
    for process in processes:
        anonymous, shared = _resident(process.pid)
        memory += max(0, anonymous - base) + max(0, shared - lent)
        tasks += process.threads
        held |= _unlinked(process.pid, device) if files_too else {}
    # A file in memory that is mapped counts by its pages above; whichever is larger is the truth.
    in_memory = sum(size for size, on_disk in held.values() if not on_disk)
    size, files = _folder(child.scratch) if files_too else (0, 0)
    on_disk = sum(size for size, on_disk in held.values() if on_disk)
    return Usage(max(memory, in_memory), tasks, size + on_disk, files)


def group_processes(root: int) -> dict[int, list[Process]]:
    """Descendants of `root` by process group. Processes that come or go meanwhile may be missed."""
    groups: dict[int, list[Process]] = {}
    pending = _children(root)
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            group, threads = int(fields[2]), int(fields[17])
            groups.setdefault(group, []).append(Process(pid, threads))
            pending += _children(pid)
    return groups


def anonymous_bytes(pid: int) -> int:
    """Resident anonymous memory of a process; 0 where there is none."""
    return _resident(pid)[0]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def _resident(pid: int) -> tuple[int, int]:
    """(anonymous, shared) resident bytes; mapped files of the disk are nobody's in particular and left out."""
    anonymous = shared = 0
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                anonymous = int(line.split()[1]) << 10
            elif line.startswith("RssShmem:"):
                shared = int(line.split()[1]) << 10
    return anonymous, shared


def _unlinked(pid: int, scratch_device: int) -> dict[tuple[int, int], tuple[int, bool]]:
    """Open files without a name, memfds among them: identity -> (bytes, whether on the disk of the scratch)."""
    found: dict[tuple[int, int], tuple[int, bool]] = {}
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found  # of another user, and we are not root
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            about = os.stat(f"/proc/{pid}/fd/{descriptor}")
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                found[about.st_dev, about.st_ino] = (about.st_blocks * 512, about.st_dev == scratch_device)
    return found


def _device(folder: Path) -> int:
    try:
        return os.stat(folder).st_dev
    except OSError:
        return -1


_LOOKED_AT = 50_000
"""Entries after which a folder is not counted further: it is over any bound."""


def _folder(top: Path) -> tuple[int, int]:
    """(bytes on disk, entries) below a folder that others change meanwhile. Folders closed to us count as one."""
    size = entries = 0
    pending = [str(top)]
    while pending and entries < _LOOKED_AT:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as inside:
            for entry in inside:
                entries += 1
                if entries >= _LOOKED_AT:
                    break
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return size, entries


def oom_kills() -> int:
    """Processes that this machine's kernel has killed for want of memory since it started."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as counters:
        for line in counters:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
