"""Where traces are kept: named byte strings, each created once, in a folder or under an S3 prefix.

Knows nothing of Parquet or episodes. The promise that the rest builds on is `put_if_absent`: a key appears
whole or not at all, and only one writer creates it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import re
import time
from pathlib import Path
from typing import Protocol

from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.local_files import TEMPORARY, StoredFile, link, sync_folder, write_temporary

_TEMPORARY_NAME = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]{{32}}")
DEAD_AFTER_S = 3600.0
"""A half-written file that has not grown for so long has no writer: each is written from memory, in one go."""
_LOCK = ".lock"
# Conditions that end without anyone changing the settings: a full disk, a network file system away.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN})

Reader = io.RawIOBase | io.BufferedIOBase
"""A seekable binary file. What fails in reading it is a StoreError too."""


class StoreUnavailable(StoreError):
    """The store does not answer now but may later: repeat the same call."""


class StoreRefused(StoreError):
    """The store answers, and refuses: a missing permission, a wrong name, or a server that is still starting."""


class Store(Protocol):
    """Keys are relative, with `/` between parts. Every method may raise StoreError or StoreUnavailable.

    Methods may be called from several threads.
    """

    uri: str
    """Absolute path of the folder, or `s3://bucket/prefix`."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create `key`. True: written now. False: it existed, perhaps by an earlier try of this very call."""
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Write `key` whole, whether it existed or not."""
        ...

    def get(self, key: str) -> bytes | None:
        """All bytes of `key`; None where there is none."""
        ...

    def versioned(self, key: str) -> tuple[bytes, str] | None:
        """The same with a word for this very content, for `replace_if`."""
        ...

    def replace_if(self, key: str, data: bytes, version: str) -> str | None:
        """Write `key` whole where its content still is `version`, in one step; the new version. None: it is not,
        perhaps by an earlier try of this very call."""
        ...

    def open(self, key: str) -> Reader:
        """A seekable reader that fetches what is asked of it. StoreError where there is no such key."""
        ...

    def list(self, prefix: str) -> list[str]:
        """All keys that start with `prefix`, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Remove `key`; no error where there is none."""
        ...

    def check_writable(self) -> None:
        """ConfigError, within 10 s, where traces could not be kept here. Leaves nothing behind."""
        ...


def open_store(uri: str, *, endpoint_url: str | None = None) -> Store:
    """The store at a path or `s3://bucket/prefix`; touches nothing yet.

    `endpoint_url` names a server other than Amazon's; by default AWS_ENDPOINT_URL[_S3] does.
    ConfigError for another scheme, a missing bucket name or unusable AWS settings.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalStore(uri)
    if scheme != "s3":
        raise ConfigError(f"output {uri}: unknown kind of store '{scheme}', use a folder or s3://bucket/prefix")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise ConfigError(f"output {uri}: no bucket name, write s3://bucket/prefix")
    # boto3 takes a third of a second to import: only who uses S3 pays for it.
    from kb_ray.traces.s3 import S3Store

    return S3Store(bucket, prefix.strip("/"), endpoint_url)


def open_to_read(uri: str) -> Store:
    """The same of a store that has to be there already. ConfigError too where its path leads to no folder."""
    store = open_store(uri)
    if isinstance(store, LocalStore):
        store.check_folder()
    return store


def local_path(text: str) -> Path:
    """`text` as a path, with `~` in full: a shell leaves it in `--output=~/x`.

    ConfigError for the home folder of a user that is none: nothing is to be written into a folder called `~name`.
    """
    found = os.path.expanduser(text)
    if found.startswith("~"):
        raise ConfigError(f"{text}: there is no home folder {found.partition('/')[0]}, name the folder in full")
    return Path(found)


def endpoint_from_environment() -> str | None:
    """The S3 endpoint that AWS settings in the environment name; None means Amazon's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


class LocalStore:
    """A folder. Made at the first write."""

    def __init__(self, path: str) -> None:
        if not path:
            raise ConfigError("output is empty: name a folder or s3://bucket/prefix")
        self._root = local_path(path).absolute()
        self.uri = str(self._root)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """See Store. A hard link is the one local step that creates whole and refuses to replace."""
        target = self._root / key
        try:
            temporary = write_temporary(target, data)
            try:
                return link(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
                sync_folder(target.parent)
        except OSError as error:
            raise self._failure(error) from error

    def replace(self, key: str, data: bytes) -> None:
        """See Store."""
        target = self._root / key
        try:
            os.replace(write_temporary(target, data), target)
            sync_folder(target.parent)
        except OSError as error:
            raise self._failure(error) from error

    def get(self, key: str) -> bytes | None:
        """See Store."""
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure(error) from error

    def versioned(self, key: str) -> tuple[bytes, str] | None:
        """See Store."""
        data = self.get(key)
        return None if data is None else (data, hashlib.sha256(data).hexdigest())

    def replace_if(self, key: str, data: bytes, version: str) -> str | None:
        """See Store. Those who use it exclude each other by a lock that the system takes back from the dead."""
        folder = (self._root / key).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                found = self.versioned(key)
                if found is None or found[1] != version:
                    return None
                self.replace(key, data)
        except OSError as error:
            raise self._failure(error) from error
        return hashlib.sha256(data).hexdigest()

    def open(self, key: str) -> Reader:
        """See Store."""
        try:
            return io.BufferedReader(StoredFile(self._root / key, self._failure))
        except OSError as error:
            raise self._failure(error) from error

    def list(self, prefix: str) -> list[str]:
        """See Store. What a killed writer left half-written is not a key."""
        folder = self._root / prefix.rpartition("/")[0]
        try:
            found = [path for path in folder.rglob("*") if not path.name.startswith((TEMPORARY, _LOCK))]
            keys = [path.relative_to(self._root).as_posix() for path in found if path.is_file()]
        except OSError as error:
            raise self._failure(error) from error
        return sorted(key for key in keys if key.startswith(prefix))

    def leftovers(self) -> tuple[str, ...]:
        """Files that a writer has not finished: of one that was killed, or is at it now."""
        return tuple(sorted(path.relative_to(self._root).as_posix() for path in self._root.rglob(f"{TEMPORARY}*")))

    def remove_leftovers(self) -> None:
        """Removes those of `leftovers` that nobody is writing any longer."""
        for path in (self._root / name for name in self.leftovers()):
            try:
                if _TEMPORARY_NAME.fullmatch(path.name) and time.time() - path.stat().st_mtime > DEAD_AFTER_S:
                    path.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._failure(error) from error

    def delete(self, key: str) -> None:
        """See Store."""
        try:
            (self._root / key).unlink(missing_ok=True)
        except OSError as error:
            raise self._failure(error) from error

    def check_writable(self) -> None:
        """See Store. Asks the nearest folder that exists, since this one may still have to be made."""
        nearest = self._nearest()
        if not nearest.is_dir():
            raise ConfigError(f"output {self.uri}: {nearest} is a file, name a folder")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise ConfigError(f"output {self.uri}: no permission to write in {nearest}, choose another folder")

    def check_folder(self) -> None:
        """ConfigError where it is no folder."""
        if not (nearest := self._nearest()).is_dir():
            raise ConfigError(f"trace store {self.uri}: {nearest} is a file, name the --output of a run")
        if nearest != self._root:
            raise ConfigError(f"trace store {self.uri}: there is no such folder, name the --output of a run")

    def _nearest(self) -> Path:
        """Itself, or the lowest above it that exists."""
        return next(path for path in (self._root, *self._root.parents) if path.exists())

    def _failure(self, error: OSError, path: Path | None = None) -> StoreError:
        kind = StoreUnavailable if error.errno in _PASSING else StoreRefused
        where = error.filename or path or self.uri
        advice = "; if it stays so, move that file away" if path is not None else ""
        return kind(f"trace store {self.uri}: {error.strerror or error} ({where}){advice}")
