"""The files of an index on this machine: those of a folder as they are, those of S3 in a copy, all of them checked.

Refuses in one line what is missing, cut off or changed. Does not know what the files hold.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kb_ray.errors import ConfigError, StoreError
from kb_ray.retrieve.layout import File, IndexInfo
from kb_ray.traces.store import LocalStore, Store, local_path

_CHUNK = 4 * 1024**2
_STORES = ("trace store ", "output ")
"""How errors of a store begin, which mostly holds traces."""


def folder_of(store: Store, info: IndexInfo) -> Path:
    """A local folder with the index's files, each of them what was written. ConfigError where one is not.

    What lies on S3 is copied to ~/.cache/kb_ray (or XDG_CACHE_HOME), and again where the copy is damaged.
    """
    if isinstance(store, LocalStore):
        folder = Path(store.uri)
    else:
        folder = _cache() / f"{info.identity}-{hashlib.sha256(store.uri.encode()).hexdigest()[:8]}"
        _copy(store, info, folder)
    for file in info.files:
        fault = _fault(folder, file)
        if fault is not None:
            raise ConfigError(damaged(store.uri, file.key, fault))
    return folder


def damaged(uri: str, key: str, what: str) -> str:
    """How a file that is not what it was is told of."""
    return f"index {uri}: {key} {what}: build the index again, in another folder"


@contextmanager
def told_of_index(uri: str = "") -> Iterator[None]:
    """Errors of a store, worded as those of an index; with `uri` only of the store there, not of stores of traces."""
    try:
        yield
    except (ConfigError, StoreError) as error:
        text = str(error)
        for beginning in _STORES:
            if text.startswith(f"{beginning}{uri}"):
                raise type(error)(f"index {text.removeprefix(beginning)}") from error
        raise


def _copy(store: Store, info: IndexInfo, folder: Path) -> None:
    local = LocalStore(str(folder))
    for file in info.files:
        if _fault(folder, file) is not None:
            data = store.get(file.key)
            if data is None:
                raise ConfigError(damaged(store.uri, file.key, "is missing"))
            local.replace(file.key, data)


def _cache() -> Path:
    return local_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "kb_ray" / "indexes"


def _fault(folder: Path, file: File) -> str | None:
    """What is wrong with a file; None where it is what was written."""
    path = folder / file.key
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != file.size:
        return f"has {size} bytes, not {file.size}"
    digest = hashlib.sha256()
    try:
        with path.open("rb") as data:
            while chunk := data.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if digest.hexdigest() == file.sha256 else "is not what was written"
