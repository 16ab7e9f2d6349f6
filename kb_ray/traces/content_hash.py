"""The hash by which a file of a store is known to be what was written.

Knows how it is named and computed; what a difference means is its readers' business.
"""

from __future__ import annotations

import hashlib
import re

from kb_ray.traces.store import Reader

_CHUNK_BYTES = 4 * 1024**2
_HASH_IN_NAME = re.compile(r"-([0-9a-f]{16})\.parquet$")


def digest(source: Reader) -> str:
    """SHA-256 of all bytes from here on, hexadecimal; holds a few megabytes."""
    found = hashlib.sha256()
    while chunk := source.read(_CHUNK_BYTES):
        found.update(chunk)
    return found.hexdigest()


def in_name(key: str) -> str:
    """The beginning of the hash that a file's name holds; empty where it holds none."""
    named = _HASH_IN_NAME.search(key)
    return named[1] if named else ""
