"""The few facts of each episode that a start needs, of hundreds of parts in one file: it need not open them all.

    index/parts-*.parquet     written by a run beside its parts

A part never changes, so that what is said of it stays true. What no index tells is read from the part itself, and an
index that is damaged is passed over: deleting all of them loses time and nothing else. Decides nothing.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.traces.columns import SCHEMA
from kb_ray.traces.content_hash import in_name
from kb_ray.traces.store import Store

INDEX_PREFIX = "index/"
FACTS = ("episode_id", "task_id", "sample", "attempt", "stop_reason", "correct")
PARTS_PER_INDEX = 250
_READERS = 8
_SCHEMA = pa.schema([pa.field("key", pa.string()), *(SCHEMA.field(name) for name in FACTS)])


def write_index(store: Store, parts: Sequence[tuple[str, pa.Table]]) -> None:
    """Keeps the facts of these parts: (key, table that has them, a row for each row of the part). StoreError."""
    tables = [
        pa.table(
            [pa.array([key] * table.num_rows, pa.string()), *(table.column(name) for name in FACTS)], schema=_SCHEMA
        )
        for key, table in parts
    ]
    sink = io.BytesIO()
    pq.write_table(pa.concat_tables(tables), sink, compression="zstd", write_statistics=False)
    data = sink.getvalue()
    store.put_if_absent(f"{INDEX_PREFIX}parts-{hashlib.sha256(data).hexdigest()[:16]}.parquet", data)


def read_index(store: Store) -> dict[str, pa.Table]:
    """The facts of each part that an index tells of, by the part's key. StoreError where the store fails."""
    keys = [key for key in store.list(INDEX_PREFIX) if in_name(key)]
    found: dict[str, pa.Table] = {}
    with ThreadPoolExecutor(_READERS, thread_name_prefix="trace-index") as readers:
        for table in readers.map(lambda key: _read(store, key), keys):
            if table is not None:
                found |= _by_part(table)
    return found


def _read(store: Store, key: str) -> pa.Table | None:
    data = store.get(key)
    if data is None or not hashlib.sha256(data).hexdigest().startswith(in_name(key)):
        return None
    try:
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowException, OSError):
        return None
    return table.combine_chunks() if table.schema.equals(_SCHEMA) else None


def _by_part(table: pa.Table) -> dict[str, pa.Table]:
    """One slice for each key; the rows of a key stand together."""
    keys = table.column("key").to_pylist()
    starts = [place for place, key in enumerate(keys) if place == 0 or key != keys[place - 1]]
    return {
        keys[begin]: table.slice(begin, end - begin)
        for begin, end in zip(starts, [*starts[1:], len(keys)], strict=True)
    }
