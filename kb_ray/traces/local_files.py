"""Files of a folder that holds a store: written whole under another name first, named in one step, read with care.

Knows paths; what is kept in the files, and what their failures mean for a run, is the store's.
"""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kb_ray.errors import StoreError

TEMPORARY = ".tmp-"
"""How names of files begin that are not written whole yet."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


class StoredFile(io.FileIO):
    """A file whose failures, once it is open too, are told as the store's: they are no damage of what it holds."""

    def __init__(self, path: Path, failure: Callable[[OSError, Path], StoreError]) -> None:
        super().__init__(path)
        self._path, self._failure = path, failure

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with self._told():
            return super().seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        with self._told():
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with self._told():
            return super().readall()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failure(error, self._path) from error


def write_temporary(target: Path, data: bytes) -> Path:
    """`data` on disk beside `target`, so that naming it is one step within one file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def link(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # exFAT and some network mounts have no hard links. Two writers could then meet between these lines;
        # part names carry their content's hash, so only equal bytes can replace each other there.
        if target.exists():
            return False
        os.rename(temporary, target)
    return True


def sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
