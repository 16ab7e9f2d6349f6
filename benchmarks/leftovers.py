"""What the workers of a pool on this machine hold: processes, files, memory, descriptors; and what lies outside them.

Looks from outside, in /proc and the folders of evaluators. Judges nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kb_ray.bench.actor import WorkerStats
from kb_ray.bench.sweep import base_dir

MIB = 1 << 20


def _folders(workers: Iterable[WorkerStats]) -> list[Path]:
    """Of their evaluators."""
    return [folder for worker in workers for folder in base_dir().glob(f"{worker.name}-*")]


def inside(workers: Iterable[WorkerStats]) -> dict[str, Any]:
    """What they hold while they have nothing to do."""
    known = list(workers)
    trusted = [pid for worker in known for pid in worker.pids.values()]
    return {
        "processes": sum(len(_descendants(worker.pid)) for worker in known),
        "recorded_groups": sum(len(list(folder.glob("*/groups/*"))) for folder in _folders(known)),
        "files": sum(len(files) + len(below) for folder in _folders(known) for _, below, files in os.walk(folder)),
        "trusted_mib": sum(_resident(pid) for pid in trusted) / MIB,
        "trusted_descriptors": sum(map(_descriptors, trusted)),
    }


def outside() -> dict[str, set[str]]:
    """What outlasts a process, by where it is; the folder that all evaluators share counts by what is in it."""
    base = base_dir()
    temporary = {entry.name for entry in base.parent.iterdir() if entry != base}
    shared = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {
        "temporary files": temporary | {f"{base.name}/{entry.name}" for entry in base.glob("*")},
        "shared memory": {entry.name for entry in Path("/dev/shm").iterdir()},
        "segments": {line.split()[1] for line in shared},
    }


def processes(word: str) -> list[str]:
    """Command lines of this machine's processes that have `word` in them."""
    lines = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            lines.append(f"{int(entry.name)} {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
    return sorted(line for line in lines if word in line)


def _descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    level = {root}
    while level := {pid for pid, parent in parents.items() if parent in level}:
        found |= level
    return found


def _resident(pid: int) -> int:
    """Bytes of memory that a process of ours has in use; none where it has just been replaced."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
