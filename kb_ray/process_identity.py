"""Which process this is, so that another one on the same machine can tell whether it still lives.

A number alone would not do: it is used again, and containers count for themselves. Only Linux tells enough; elsewhere
nothing is known and nobody is called dead.
"""

from __future__ import annotations

import os
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


def place() -> str:
    """What processes have in common that see each other's numbers; empty where that is not known."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink(_NAMESPACE)}"
    except OSError:
        return ""


def born(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None where there is none, or only what waits to be reaped."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(fields[18])


def lives(pid: int, born_at: int | None, there: str) -> bool | None:
    """Whether that process of that place lives; None where it cannot be seen from here."""
    if not there or there != place() or born_at is None:
        return None
    return born(pid) == born_at
