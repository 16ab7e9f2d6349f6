"""Folders of evaluators on this machine, and the removal of what a killed one left behind.

Each evaluator claims a folder that names its process; under it a file stands for every candidate's
process group while it lives. Whoever starts next kills the groups of owners that are gone and removes
their folders. Needs the standard library only.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path


def base_dir() -> Path:
    """Where this user's evaluators on this machine keep their folders."""
    return Path(tempfile.gettempdir()) / f"kb_ray-{os.getuid()}"


def claim(name: str) -> Path:
    """A new folder for this process's evaluator `name`, after sweeping those whose owner is gone."""
    base = base_dir()
    base.mkdir(mode=0o711, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise PermissionError(f"{base} belongs to another user: set TMPDIR to a folder of your own")
    for folder in base.iterdir():
        if not _owner_lives(folder):
            remove(folder)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
    folder.chmod(0o711)
    (folder / "owner").write_text(_identity(os.getpid()))
    for part in ("candidates", "references"):
        (folder / part / "groups").mkdir(parents=True)
        (folder / part).chmod(0o711)
    return folder


def remove(folder: Path) -> None:
    """Kill every group still recorded under an evaluator's folder, then remove the folder."""
    for record in folder.glob("*/groups/*"):
        kill_group(int(record.name))
    shutil.rmtree(folder, ignore_errors=True)


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
    try:
        said = (folder / "owner").read_text()
    except OSError:
        # Just being claimed, or being removed: either way not ours to touch.
        return True
    return said == _identity(int(said.split()[0]))


def _identity(pid: int) -> str:
    """A process beyond the reuse of its pid: pid and start time since boot; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{pid} {fields[19]}"
