"""What a sandboxed process may use, with all that it starts, where nobody says otherwise.

Reads how much memory this machine, or the container that this runs in, has. Watches nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from kb_ray.bench.child.watchdog import Bounds

_GIB = 1 << 30
_MEMORY = {"cpu": 10 * _GIB, "cuda": 16 * _GIB}
_REFERENCE_MEMORY = {"cpu": 10 * _GIB, "cuda": 64 * _GIB}
"""On a GPU machine a reference may draw gigabytes of inputs in main memory before it moves them."""
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Limits of a container, by versions 2 and 1 of cgroups."""


def usual(device: Literal["cpu", "cuda"], role: Literal["candidates", "references"], at_once: int) -> Bounds:
    """The bounds of one of `at_once` that run side by side.

    On a CPU, candidates together get no more than half of the machine's memory: several that take all they can must not
    have the kernel end what is not theirs.
    """
    memory = _MEMORY[device]
    if role == "references":
        memory = _REFERENCE_MEMORY[device]
    elif device == "cpu":
        memory = min(memory, machine_memory() // (2 * at_once))
    return Bounds(memory_bytes=memory, tasks=256, scratch_bytes=2 * _GIB, scratch_files=20_000)


def machine_memory(limits: Iterable[Path] = _CONTAINER) -> int:
    """Bytes that this machine has, or that its container may use where that is less."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in limits:
        # Version 2 says `max` where there is no limit.
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min(found)
