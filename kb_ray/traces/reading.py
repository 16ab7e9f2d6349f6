"""Reading a whole trace store for good: what is in it, which files are damaged, and its episodes in bounded memory.

Looks at every file before the first episode is handed out, so that a command can refuse a store before it writes
anything. Damage is told by the hash in a file's name as well as by its inside. Does not know what is done with the
episodes, and mends nothing.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.errors import ConfigError, StoreError
from kb_ray.records import Episode
from kb_ray.traces.layout import FINAL_PREFIX, RUN_KEY, Manifest, read_manifest, sources
from kb_ray.traces.schema import SCHEMA, check_version, row_to_episode
from kb_ray.traces.store import Reader, Store, StoreUnavailable

_READERS = 8
_CHUNK_BYTES = 4 * 1024**2
_BATCH_ROWS = 128
_MAX_NAMED = 8
_KEYS = ("episode_id", "task_id", "sample", "attempt")
_HASH_IN_NAME = re.compile(r"-([0-9a-f]{16})\.parquet$")


@dataclass(frozen=True)
class Damaged:
    """A file that cannot be read, and why, in one line."""

    key: str
    reason: str


@dataclass(frozen=True)
class Survey:
    """What a store holds: each (task, sample) once, in its highest attempt, and where that row is."""

    store: Store
    rows: dict[str, tuple[int, ...]]
    """0-based rows to read, ascending, by file, oldest file first. A file without such a row is not here."""
    files: tuple[str, ...]
    """Every readable file, whether a row of it counts or not."""
    superseded: int
    """Rows of earlier attempts and repeated rows, which do not count."""
    damaged: tuple[Damaged, ...]
    """Files that were left out."""

    @property
    def episodes(self) -> int:
        """How many episodes count."""
        return sum(map(len, self.rows.values()))


def survey(store: Store, *, skip_corrupt: bool = False, verify: bool = True) -> Survey:
    """Looks at every file that counts. `verify` also compares each with the hash in its name: it reads them whole.

    ConfigError, in one line, where the store holds no episode, where files are damaged (all named; with
    `skip_corrupt` they are left out instead) or written by a newer kb_ray (never left out). StoreError where the
    store itself fails.
    """
    keys, missing = _present(store)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="trace-survey") as readers:
        found = list(readers.map(lambda key: _look(store, key, verify), keys))
    damaged = (*missing, *(entry for entry in found if isinstance(entry, Damaged)))
    if damaged and not skip_corrupt:
        raise ConfigError(_refusal(store, damaged))
    tables = {key: entry for key, entry in zip(keys, found, strict=True) if not isinstance(entry, Damaged)}
    rows = _latest(tables)
    if not rows:
        raise ConfigError(_nothing(store, damaged))
    total = sum(table.num_rows for table in tables.values())
    return Survey(store, rows, tuple(tables), total - sum(map(len, rows.values())), damaged)


def manifest_of(store: Store) -> Manifest | None:
    """The manifest of a store's compaction, None without one. ConfigError where it cannot be understood."""
    try:
        return read_manifest(store)
    except StoreUnavailable:
        raise
    except StoreError as error:
        raise ConfigError(str(error)) from error


def read_tables(found: Survey, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows that count, in tables of at most 128, in the order of the survey; all of SCHEMA, or these columns.

    Holds one row group of one file. StoreError where a file went or broke since the survey.
    """
    for key in found.rows:
        yield from read_file(found.store, key, found.rows[key], columns)


def read_episodes(found: Survey) -> Iterator[Episode]:
    """The episodes that count, in the order of the survey, in bounded memory. Errors as `read_tables`."""
    for table in read_tables(found):
        yield from map(row_to_episode, table.to_pylist())


def read_file(store: Store, key: str, rows: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """These rows (0-based, ascending) of one file, in tables of at most 128 in SCHEMA's order and types."""
    wanted = [name for name in SCHEMA.names if columns is None or name in columns]
    try:
        with store.open(key) as source:
            file = pq.ParquetFile(source, pre_buffer=True)
            held = [name for name in wanted if name in file.schema_arrow.names]
            for start, batch in _batches(file, held, rows):
                first, end = bisect_left(rows, start), bisect_left(rows, start + batch.num_rows)
                if first < end:
                    table = pa.Table.from_batches([batch])
                    # Taking rows of a hundred nested columns costs more than reading them.
                    if end - first < batch.num_rows:
                        table = table.take([row - start for row in rows[first:end]])
                    yield _in_schema(table, wanted)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"trace store {store.uri}: {key} can no longer be read, start again ({_one_line(error)})"
        ) from error


def _batches(file: pq.ParquetFile, columns: Sequence[str], rows: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(number of its first row, batch) of the row groups that hold one of `rows`."""
    start = 0
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if bisect_left(rows, start) < bisect_left(rows, start + size):
            # One row group at a time: what is fetched ahead stays one row group.
            position = start
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=list(columns), use_threads=False):
                yield position, batch
                position += batch.num_rows
        start += size


def _present(store: Store) -> tuple[list[str], list[Damaged]]:
    """Keys that count and are there, and files that a compaction's manifest names and that are not."""
    manifest = manifest_of(store)
    keys = sources(store)
    named = {file.key for file in manifest.files} if manifest else set()
    there = frozenset(store.list(FINAL_PREFIX)) if named else frozenset()
    missing = [key for key in keys if key in named and key not in there]
    return [key for key in keys if key not in missing], [
        Damaged(key, "named by the manifest, not there") for key in missing
    ]


def _look(store: Store, key: str, verify: bool) -> pa.Table | Damaged:
    """The columns that identify a file's episodes. ConfigError where a newer kb_ray wrote it."""
    with store.open(key) as source:
        expected = _HASH_IN_NAME.search(key)
        if verify and expected and _digest(source) != expected[1]:
            return Damaged(key, "its content is not what was written")
        source.seek(0)
        try:
            file = pq.ParquetFile(source, pre_buffer=True)
            schema = file.schema_arrow
            check_version(schema)
            if not set(_KEYS) <= set(schema.names):
                return Damaged(key, f"not a trace file, it lacks one of the columns {', '.join(_KEYS)}")
            return file.read(columns=list(_KEYS), use_threads=False)
        except StoreError as error:
            raise ConfigError(f"trace store {store.uri}: {key}: {error}") from error
        except (pa.ArrowException, OSError) as error:
            return Damaged(key, _one_line(error))


def _in_schema(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """`table`, of this or an older version, with these columns of SCHEMA: what it lacked is null."""
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    if table.schema.equals(schema):
        return table.replace_schema_metadata(SCHEMA.metadata)
    return pa.Table.from_pylist(table.to_pylist(), schema=schema.with_metadata(SCHEMA.metadata))


def _digest(source: Reader) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()[:16]


def _latest(tables: dict[str, pa.Table]) -> dict[str, tuple[int, ...]]:
    """Rows by file: each (task, sample) in its highest attempt, of two rows of one attempt the first."""
    place: dict[tuple[str, int], tuple[int, str, int]] = {}
    for key, table in tables.items():
        columns = [table.column(name).to_pylist() for name in ("task_id", "sample", "attempt")]
        for row, (task_id, sample, attempt) in enumerate(zip(*columns, strict=True)):
            known = place.get((task_id, sample))
            if known is None or attempt > known[0]:
                place[task_id, sample] = (attempt, key, row)
    chosen: dict[str, list[int]] = {key: [] for key in tables}
    for _, key, row in place.values():
        chosen[key].append(row)
    return {key: tuple(sorted(rows)) for key, rows in chosen.items() if rows}


def _refusal(store: Store, damaged: Sequence[Damaged]) -> str:
    named = "; ".join(f"{file.key} ({file.reason})" for file in damaged[:_MAX_NAMED])
    rest = f" and {len(damaged) - _MAX_NAMED} more" if len(damaged) > _MAX_NAMED else ""
    return f"trace store {store.uri}: {len(damaged)} damaged: {named}{rest}; --skip-corrupt leaves them out"


def _nothing(store: Store, damaged: Sequence[Damaged]) -> str:
    if damaged:
        return f"trace store {store.uri}: none of its {len(damaged)} files can be read"
    if store.get(RUN_KEY) is not None:
        return f"trace store {store.uri}: its run has finished no episode yet"
    return f"trace store {store.uri}: no episodes here, name the --output of a run"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
