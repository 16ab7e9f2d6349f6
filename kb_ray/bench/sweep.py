"""Folders of evaluators on this machine, and the removal of what a killed one left behind.

Each evaluator claims a folder that names its process; under it a file stands for every candidate's
process group while it lives. Whoever starts next kills the groups of owners that are gone and removes
their folders. Containers that share a folder for temporary files do not see each other's processes: there the
lock tells that an owner keeps while it lives. Needs the standard library only.
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
    with _claiming(base):
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
        folder.chmod(0o711)
        (folder / "place").write_text(place())
        (folder / "owner").write_text(f"{os.getpid()} {born(os.getpid())}")
    _locks[folder] = _lock(folder / "owner", wait=False)
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
        return [folder for folder in base_dir().iterdir() if not _owner_lives(folder)]
    except FileNotFoundError:
        return []


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


def _owner_lives(folder: Path) -> bool:
    here, there, owner = place(), _said(folder, "place"), _said(folder, "owner")
    if not owner:
        # Just being claimed, or whoever claimed or removed it was killed at that.
        with _claiming(folder.parent) as alone:
            return bool(_said(folder, "owner")) or (not alone and _seconds_old(folder) < _ABANDONED_S)
    if there and there != here:
        # Nothing outlives a boot; nor a container, but what still runs in one is for its next evaluator to kill.
        same_boot = there.split()[0] == here.partition(" ")[0]
        return same_boot and (_locked(folder) or _seconds_old(folder) < _ABANDONED_S)
    pid, _, birth = owner.partition(" ")
    return pid.isdecimal() and str(born(int(pid))) == birth


@contextlib.contextmanager
def _claiming(base: Path) -> Iterator[bool]:
    """While one process is here, no other is: a folder that names no owner is then nobody's. False where there are no
    locks."""
    held = _lock(base, wait=True)
    try:
        yield held is not None
    finally:
        if held is not None:
            os.close(held)


def _lock(path: Path, wait: bool) -> int | None:
    """A lock that the kernel takes away with the last process that has it; None where another has it, or there is
    none to be had."""
    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(held)
        return None
    return held


def _locked(folder: Path) -> bool:
    try:
        held = _lock(folder / "owner", wait=False)
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
