"""The files of one part while an index is built: written whole, and taken from an earlier start where they are sound.

Damaged files are written again. Does not know what is embedded or verified.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.errors import ConfigError, StoreError
from kb_ray.retrieve.example import SCHEMA, Example, encode
from kb_ray.retrieve.layout import File, Part
from kb_ray.retrieve.verifying import Outcome, Verified, decode_outcomes, encode_outcomes
from kb_ray.traces.store import Store

ROWS, VECTORS, VERDICTS = ".parquet", ".npy", ".verdicts.parquet"


class Earlier(NamedTuple):
    """A part that an earlier start finished."""

    ids: list[str]
    """Of the examples in it, in order."""
    part: Part | None
    """None: nothing was kept of it."""


class PartFiles:
    """Parts in a store. `dimension` None: without vectors."""

    def __init__(self, store: Store, dimension: int | None) -> None:
        self._store, self._dimension = store, dimension

    def earlier(self, name: str, there: set[str]) -> Earlier | None:
        """The part of that name, where it is whole; `there` are the keys that the store had."""
        needed = [name + ROWS] + ([name + VECTORS] if self._dimension else [])
        if not there.issuperset(needed):
            return None
        found = [self._store.get(key) for key in needed]
        ids = _ids(found[0])
        if ids is None or (self._dimension and not self._are_vectors(found[1], len(ids))):
            return None
        files = [File.of(key, data or b"") for key, data in zip(needed, found, strict=True)]
        part = Part(rows=len(ids), examples=files[0], vectors=files[1] if self._dimension else None) if ids else None
        return Earlier(ids, part)

    def write(self, name: str, examples: Sequence[Example], vectors: Any) -> Part | None:
        """Writes a part, its rows last: with them it is whole. None where nothing was kept of it.

        ConfigError where the vectors are no numbers.
        """
        file = None
        if self._dimension:
            data = _npy(vectors if len(examples) else np.zeros((0, self._dimension)))
            if not self._are_vectors(data, len(examples)):
                raise ConfigError(
                    f"the embedding model gave no {self._dimension} finite numbers for each program of {name}: "
                    "use another model"
                )
            file = self._put(name + VECTORS, data, len(examples))
        rows = self._put(name + ROWS, encode(examples), len(examples))
        return Part(rows=len(examples), examples=rows, vectors=file) if examples else None

    def outcomes(self, name: str, there: set[str]) -> dict[str, Outcome]:
        """What earlier starts were told of the part's kernels, by example."""
        key = name + VERDICTS
        return decode_outcomes(self._store.get(key) or b"") if key in there else {}

    def keep_outcomes(self, name: str, verified: Sequence[Verified]) -> None:
        """Keeps what the verifier said of the part."""
        self._store.replace(name + VERDICTS, encode_outcomes(verified))

    def read(self, key: str) -> bytes:
        """A file that is there. StoreError where it went."""
        data = self._store.get(key)
        if data is None:
            raise StoreError(f"index {self._store.uri}: {key} vanished while building, start again")
        return data

    def _put(self, key: str, data: bytes, rows: int) -> File:
        """Writes `key`; where another start wrote it already and it is sound, that one counts."""
        if self._store.put_if_absent(key, data):
            return File.of(key, data)
        there = self._store.get(key)
        ids = _ids(there) if key.endswith(ROWS) else None
        sound = len(ids or ()) == rows if ids is not None else self._are_vectors(there, rows)
        if there is not None and sound:
            return File.of(key, there)
        self._store.replace(key, data)
        return File.of(key, data)

    def _are_vectors(self, data: bytes | None, rows: int) -> bool:
        try:
            found = np.load(io.BytesIO(data or b""), allow_pickle=False)
        except (ValueError, OSError, EOFError):
            return False
        whole = found.shape == (rows, self._dimension) and found.dtype == np.float32
        return whole and bool(np.isfinite(found).all())


def _ids(data: bytes | None) -> list[str] | None:
    """Ids of the examples in a Parquet file; None where it is none of ours."""
    try:
        table = pq.read_table(io.BytesIO(data or b""))
    except (pa.ArrowException, OSError):
        return None
    return table["example_id"].to_pylist() if table.schema.equals(SCHEMA) else None


def _npy(vectors: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.ascontiguousarray(vectors, dtype=np.float32), allow_pickle=False)
    return out.getvalue()
