"""The processes of a Ray that a command has started, down to those that its workers started, and their end.

A signal to a whole process group, as `timeout` and other supervisors send, ends Ray's own processes before anybody has
asked Serve to end: vLLM's engines would stay behind with their memory. Linux only; elsewhere nothing is known.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import popen_fork
from pathlib import Path

from kb_ray.process_identity import born

_SET_CHILD_SUBREAPER = 36
_NODE = "raylet"
"""Whom workers and their engines belong to. The head's other processes outlast a signal that ends this one."""
_LOOK_S = 0.1
_END_S = 10.0
"""For processes to end that were killed: one that waits for a device or a disk ends only when that answers."""
REAP_S = 60.0
"""From one look at orphans to the next."""


def adopt() -> None:
    """From now on whoever is left of this process's descendants becomes its own child, and none is lost sight of."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def node() -> int | None:
    """The process of the Ray node that this process has started; None where none is seen."""
    return next((pid for pid in _children().get(os.getpid(), []) if _name(pid) == _NODE), None)


@contextmanager
def ending_with(pid: int | None, then: Callable[[], None]) -> Iterator[None]:
    """While this lasts, `then` is called from a thread of its own if that process ends; it is not to come back."""
    over = threading.Event()

    def watch() -> None:
        while pid is not None and not over.wait(_LOOK_S):
            if born(pid) is None:
                then()

    watching = threading.Thread(target=watch, name="node", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()


def end_descendants() -> list[str]:
    """SIGKILL to all that descend from this process, until there is none or 10 seconds are over; names those left."""
    give_up = time.monotonic() + _END_S
    while living := [pid for pid in _descendants(os.getpid()) if born(pid) is not None]:
        if time.monotonic() > give_up:
            return [f"{pid} ({_name(pid)})" for pid in living]
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return []


def reap_orphans(seen: Collection[int]) -> list[int]:
    """Lets go of orphans that have ended and were `seen` before; returns what ended children there are now.

    Those that this process started are left to whoever asks for their exit code. Seen twice, since one that is just
    being started is not known as such yet.
    """
    ended = [pid for pid in _children().get(os.getpid(), []) if born(pid) is None]
    if again := set(ended).intersection(seen):
        for pid in again - _started_here():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return ended


def _started_here() -> set[int]:
    """Children that an object of this process stands for: Linux does not tell them from adopted ones."""
    kinds = (subprocess.Popen, popen_fork.Popen)
    return {found.pid for found in gc.get_objects() if issubclass(type(found), kinds) and hasattr(found, "pid")}


def _descendants(pid: int) -> list[int]:
    children, found = _children(), list[int]()
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _children() -> dict[int, list[int]]:
    """Processes by the one that they are children of."""
    known: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            known.setdefault(parent, []).append(int(folder.name))
    return known


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
