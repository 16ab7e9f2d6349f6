"""Folders of evaluators on this machine, and the removal of what a killed one left behind.

Each evaluator claims a folder that names its process; under it a file stands for every candidate's
process group while it lives. Whoever starts next kills the groups of owners that are gone and removes
their folders. Containers that share a folder for temporary files do not see each other's processes: there the
lock tells that an owner keeps while it lives. Nobody waits for ever for a lock: whoever has it may be stopped. Needs
the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kb_ray.process_identity import born, place

_ABANDONED_S = 600.0
"""Seconds after which a folder of another container belongs to nobody, where no lock says that its owner lives."""
_REMOVAL_S = 5.0
"""For a removal while what was killed is still dying, and writes."""
_LOCK_S = 5.0
"""For a lock that others have for moments; one that is stopped meanwhile has it for longer."""
_PARTS = ("candidates", "references")


_locks: dict[Path, int | None] = {}
"""Of the folders that this process has claimed."""


def base_dir() -> Path:
    """Where this user's evaluators on this machine keep their folders."""
    return Path(tempfile.gettempdir()) / f"kb_ray-{os.getuid()}"


def claim(name: str) -> Path:
    """A new folder for this process's evaluator `name`, after sweeping those whose owner is gone."""
    base = base_dir()
    base.mkdir(mode=0o711, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise PermissionError(f"{base} belongs to another user: set TMPDIR to a folder of your own")
    sweep()
    with _holding(base, fcntl.LOCK_SH):
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
        folder.chmod(0o711)
        (folder / "place").write_text(place())
        (folder / "owner").write_text(f"{os.getpid()} {born(os.getpid())}")
    _locks[folder] = _lock(folder / "owner", fcntl.LOCK_EX, _LOCK_S)
    for part in _PARTS:
        (folder / part / "groups").mkdir(parents=True)
        (folder / part).chmod(0o711)
    return folder


def sweep() -> None:
    """Remove the folders whose owner is gone."""
    remove(*_abandoned())


def release(folder: Path) -> None:
    """Remove one's own folder, and those whose owner lived still when it was claimed: a killed run's worker may end
    after the next run has begun."""
    remove(folder, *_abandoned())


def remove(*folders: Path) -> None:
    """Kill every group still recorded under evaluators' folders, then remove the folders: what cannot be removed is
    waited for once, not for each of them."""
    for folder in folders:
        _kill_groups(folder)
    deadline = time.monotonic() + _REMOVAL_S
    # A folder says whose it was until the last: whoever is killed at this leaves it to the next one.
    parts = [folder / part for folder in folders for part in _PARTS]
    while (parts := [part for part in parts if erase(part)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for folder in folders:
        erase(folder)
        if (held := _locks.pop(folder, None)) is not None:
            os.close(held)


def _abandoned() -> list[Path]:
    """Folders whose owner is gone; none where nobody has one, or a cleaner of temporary files took them all."""
    try:
        owners = {folder: _said(folder, "owner") for folder in base_dir().iterdir()}
        gone = [folder for folder, owner in owners.items() if owner and not _owner_lives(folder, owner)]
        return gone + _nobodys([folder for folder, owner in owners.items() if not owner])
    except FileNotFoundError:
        return []


def _nobodys(nameless: list[Path]) -> list[Path]:
    """Those of which whoever claimed or removed them was killed at that; the others are just being claimed."""
    if not nameless:
        return []
    with _holding(base_dir(), fcntl.LOCK_EX) as alone:
        return [
            folder
            for folder in nameless
            if not _said(folder, "owner") and (alone or _seconds_old(folder) >= _ABANDONED_S)
        ]


def _kill_groups(folder: Path) -> None:
    if _said(folder, "place") != place():
        # Elsewhere the numbers are those of other processes.
        return
    # Somebody else may be removing the same.
    with contextlib.suppress(FileNotFoundError):
        for record in folder.glob("*/groups/*"):
            kill_group(int(record.name))


def erase(folder: Path) -> bool:
    """Remove a folder, whatever strangers made in it: deeper than recursion or a path can reach, or closed to us.

    What cannot be removed stays, so what somebody makes meanwhile who is at work in it: then True.
    """
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return os.path.lexists(folder)
    try:
        pending = ["."]
        while pending:
            with contextlib.suppress(OSError):
                pending += _flatten(top, pending.pop())
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return os.path.lexists(folder)


def _flatten(top: int, name: str) -> list[str]:
    """Empty the folder `name` in `top` and remove it; folders in it move up into `top`, their names are returned."""
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    moved = []
    try:
        for entry in list(os.scandir(inner)):
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=inner)
                    continue
                os.chmod(entry.name, 0o700, dir_fd=inner)
                moved.append(secrets.token_hex(12))
                os.rename(entry.name, moved[-1], src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    if name != ".":
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=top)
    return moved


def kill_group(group: int) -> bool:
    """SIGKILL a process group; True once there is none."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _owner_lives(folder: Path, owner: str) -> bool:
    here, there = place(), _said(folder, "place")
    if there and there != here:
        # Nothing outlives a boot; nor a container, but what still runs in one is for its next evaluator to kill.
        same_boot = there.split()[0] == here.partition(" ")[0]
        return same_boot and (_locked(folder) or _seconds_old(folder) < _ABANDONED_S)
    pid, _, birth = owner.partition(" ")
    return pid.isdecimal() and str(born(int(pid))) == birth


@contextlib.contextmanager
def _holding(base: Path, kind: int) -> Iterator[bool]:
    """Many claim at once, and none while another has the base folder alone: one that names no owner is then nobody's.
    False where the lock is not to be had."""
    held = _lock(base, kind, _LOCK_S)
    try:
        yield held is not None
    finally:
        if held is not None:
            os.close(held)


def _lock(path: Path, kind: int, patience_s: float = 0.0) -> int | None:
    """A lock that the kernel takes away with the last process that has it; None where another has it for so long, or
    there is none to be had."""
    held, deadline = os.open(path, os.O_RDONLY | os.O_CLOEXEC), time.monotonic() + patience_s
    try:
        while not _taken(held, kind):
            if time.monotonic() >= deadline:
                raise TimeoutError
            time.sleep(0.02)
    except OSError:
        os.close(held)
        return None
    return held


def _taken(held: int, kind: int) -> bool:
    try:
        fcntl.flock(held, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(folder: Path) -> bool:
    try:
        held = _lock(folder / "owner", fcntl.LOCK_EX)
    except OSError:
        return False
    if held is not None:
        os.close(held)
    return held is None


def _said(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text().strip()
    except OSError:
        return ""


def _seconds_old(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0
