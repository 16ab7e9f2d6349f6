"""Reading a whole trace store for good: what is in it, which files are damaged, and its episodes in bounded memory.

Looks at every file before the first episode is handed out, so that a command can refuse a store before it writes
anything. Damage is told by the hash in a file's name, by its inside, and by rows that are no episodes. Does not know
what is done with the episodes, and mends nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.errors import ConfigError, StoreError
from kb_ray.records import REDONE_ON_RESUME, Episode
from kb_ray.traces import layout
from kb_ray.traces.content_hash import digest, in_name
from kb_ray.traces.schema import SCHEMA, conform, fault, must_be_known, row_to_episode
from kb_ray.traces.store import Store, StoreUnavailable

_READERS = 8
_BATCH_ROWS = 128
_MAX_NAMED = 8
_MAX_ROWS_NAMED = 3
_KEYS = ("episode_id", "task_id", "sample", "attempt", "stop_reason")
# What Arrow and the conversion to and from Python raise at bytes or values that are not what they should be.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, OverflowError)
_GONE = "named by the manifest, not there"
_ALTERED = "its content is not what was written"


@dataclass(frozen=True)
class Damaged:
    """A file that cannot be read, or rows of it that cannot, and why, in one line."""

    key: str
    reason: str


@dataclass(frozen=True)
class Survey:
    """What a store holds: each (task, sample) once, and where that row is; or each attempt once, where that was asked.

    In its highest attempt of those that a failure of server or verifier did not end, where there is one: such a failure
    says nothing, and must not stand in for an answer that was judged.
    """

    store: Store
    rows: dict[str, tuple[int, ...]]
    """0-based rows to read, ascending, by file, oldest file first. A file without such a row is not here."""
    files: tuple[str, ...]
    """Every file that can be read, rows apart that `damaged` names, whether a row of it counts or not."""
    superseded: int
    """Rows of earlier attempts and repeated rows, which do not count."""
    damaged: tuple[Damaged, ...]
    """Files that were left out, and files of which rows were."""

    @property
    def episodes(self) -> int:
        """How many episodes count."""
        return sum(map(len, self.rows.values()))


def survey(store: Store, *, skip_corrupt: bool = False, verify: bool = True, everything: bool = False) -> Survey:
    """Looks at every file that counts. `verify` also compares each with its hash and tries each row: it reads them
    whole. `everything`: earlier attempts count too, and final files that the manifest does not name.

    ConfigError, in one line, where the store holds no episode, where files or rows are damaged (all named; with
    `skip_corrupt` they are left out instead, and the parts that a damaged final file was made of are read again) or
    written by a newer kb_ray (never left out). StoreError where the store itself fails.
    """
    manifest = manifest_of(store)
    keys = layout.sources(store)
    keys += sorted(set(layout.list_finals(store)) - set(keys)) if everything else []
    looks = _Looks(store, manifest, verify=verify, rows=verify or skip_corrupt)
    looks.at(keys)
    spare = _spare_parts(store, manifest, looks.damaged)
    if looks.damaged and not skip_corrupt:
        raise ConfigError(_refusal(store, looks.damaged, bool(spare)))
    looks.at(spare)
    rows = _chosen(looks.tables, looks.faults, every_attempt=everything)
    if not rows:
        raise ConfigError(_nothing(store, looks.damaged))
    total = sum(table.num_rows - len(looks.faults.get(key, ())) for key, table in looks.tables.items())
    return Survey(store, rows, tuple(looks.tables), total - sum(map(len, rows.values())), tuple(looks.damaged))


def altered(store: Store, files: Sequence[layout.FinalFile]) -> list[Damaged]:
    """Those of a compaction's files that are gone or not what was written; reads them whole."""
    there = frozenset(layout.list_finals(store))

    def look(file: layout.FinalFile) -> Damaged | None:
        if file.key not in there:
            return Damaged(file.key, _GONE)
        with store.open(file.key) as source:
            return None if digest(source) == file.sha256 else Damaged(file.key, _ALTERED)

    with ThreadPoolExecutor(_READERS, thread_name_prefix="trace-survey") as readers:
        return [entry for entry in readers.map(look, files) if entry is not None]


def manifest_of(store: Store) -> layout.Manifest | None:
    """The manifest of a store's compaction, None without one. ConfigError where it cannot be understood."""
    try:
        return layout.read_manifest(store)
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
    """The episodes that count, in the order of the survey, in bounded memory. Errors as `read_tables`.

    ConfigError at a row that is no episode, after a survey that did not try them.
    """
    for key, rows in found.rows.items():
        numbers = iter(rows)
        for row in (row for table in read_file(found.store, key, rows) for row in table.to_pylist()):
            number = next(numbers)
            try:
                episode = row_to_episode(row)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                damage = Damaged(key, _row_faults({number: fault(row) or str(error)}))
                raise ConfigError(_refusal(found.store, [damage], spare=False)) from error
            yield episode


def read_file(store: Store, key: str, rows: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """These rows (0-based, ascending) of one file, in tables of at most 128 in SCHEMA's order and types."""
    try:
        with store.open(key) as source:
            yield from _tables(pq.ParquetFile(source, pre_buffer=True), rows, columns)
    except _UNREADABLE as error:
        raise StoreError(
            f"trace store {store.uri}: {key} can no longer be read, start again ({_one_line(error)})"
        ) from error


def _tables(file: pq.ParquetFile, rows: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    wanted = [name for name in SCHEMA.names if columns is None or name in columns]
    held = [name for name in wanted if name in file.schema_arrow.names]
    for start, batch in _batches(file, held, rows):
        first, end = bisect_left(rows, start), bisect_left(rows, start + batch.num_rows)
        if first < end:
            table = pa.Table.from_batches([batch])
            # Taking rows of a hundred nested columns costs more than reading them.
            if end - first < batch.num_rows:
                table = table.take([row - start for row in rows[first:end]])
            yield conform(table, wanted)


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


class _Looks:
    """What was seen of files so far."""

    def __init__(self, store: Store, manifest: layout.Manifest | None, *, verify: bool, rows: bool) -> None:
        self._store, self._verify, self._rows = store, verify, rows
        self._hashes = {file.key: file.sha256 for file in manifest.files} if manifest else {}
        self.tables: dict[str, pa.Table] = {}
        """The columns that identify a file's episodes, by file."""
        self.faults: dict[str, dict[int, str]] = {}
        """Why a row is no episode, by file and 0-based row."""
        self.damaged: list[Damaged] = []

    def at(self, keys: Sequence[str]) -> None:
        """Looks at these files. ConfigError where a newer kb_ray wrote one."""
        there = frozenset(layout.list_finals(self._store)) if self._hashes else frozenset()
        gone = [key for key in keys if key in self._hashes and key not in there]
        self.damaged += [Damaged(key, _GONE) for key in gone]
        keys = [key for key in keys if key not in gone]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="trace-survey") as readers:
            for key, entry in zip(keys, readers.map(self._look, keys), strict=True):
                # Rows one file after the other: it takes Python's time and a row group's memory.
                self._keep(key, entry if isinstance(entry, Damaged) or not self._rows else self._try(key, entry))

    def _keep(self, key: str, entry: pa.Table | Damaged) -> None:
        if isinstance(entry, Damaged):
            self.damaged.append(entry)
        else:
            self.tables[key] = entry

    def _try(self, key: str, table: pa.Table) -> pa.Table | Damaged:
        """`table` again, and its file's faults kept, or the damage where no row can be used."""
        told, rows = dict[int, str | None](), iter(range(table.num_rows))
        try:
            with self._store.open(key) as source:
                file = pq.ParquetFile(source, pre_buffer=True)
                for part in _tables(file, range(table.num_rows)):
                    told |= {next(rows): why for why in map(fault, part.to_pylist())}
        except _UNREADABLE as error:
            return Damaged(key, _one_line(error))
        faults = {row: why for row, why in told.items() if why}
        if not faults:
            return table
        damage = Damaged(key, _row_faults(faults))
        if len(faults) == table.num_rows:
            return damage
        self.damaged.append(damage)
        self.faults[key] = faults
        return table

    def _look(self, key: str) -> pa.Table | Damaged:
        """The columns that identify a file's episodes."""
        with self._store.open(key) as source:
            expected = self._hashes.get(key) or in_name(key)
            if self._verify and expected and not digest(source).startswith(expected):
                return Damaged(key, _ALTERED)
            source.seek(0)
            try:
                file = pq.ParquetFile(source, pre_buffer=True)
                must_be_known(file.schema_arrow, f"trace store {self._store.uri}: {key}")
                if not set(_KEYS) <= set(file.schema_arrow.names):
                    return Damaged(key, f"not a trace file, it lacks one of the columns {', '.join(_KEYS)}")
                return conform(file.read(columns=list(_KEYS), use_threads=False), _KEYS)
            except _UNREADABLE as error:
                return Damaged(key, _one_line(error))


def _spare_parts(store: Store, manifest: layout.Manifest | None, damaged: Sequence[Damaged]) -> list[str]:
    """Parts still there whose episodes a damaged final file held."""
    if manifest is None or not any(file.key.startswith(layout.FINAL_PREFIX) for file in damaged):
        return []
    return sorted(set(layout.list_parts(store)) & set(manifest.parts))


def _chosen(
    tables: dict[str, pa.Table], faults: dict[str, dict[int, str]], *, every_attempt: bool
) -> dict[str, tuple[int, ...]]:
    """Rows by file, as `Survey` says; of two rows of one attempt the first."""
    place: dict[tuple[str, int, int], tuple[tuple[bool, int], str, int]] = {}
    for key, table in tables.items():
        columns = [table.column(name).to_pylist() for name in ("task_id", "sample", "attempt", "stop_reason")]
        for row, (task_id, sample, attempt, stop_reason) in enumerate(zip(*columns, strict=True)):
            if row in faults.get(key, ()):
                continue
            name = (task_id, sample, attempt if every_attempt else 0)
            known, rank = place.get(name), (stop_reason not in REDONE_ON_RESUME, attempt)
            if known is None or rank > known[0]:
                place[name] = (rank, key, row)
    chosen: dict[str, list[int]] = {key: [] for key in tables}
    for _, key, row in place.values():
        chosen[key].append(row)
    return {key: tuple(sorted(rows)) for key, rows in chosen.items() if rows}


def _row_faults(faults: dict[int, str]) -> str:
    named = "; ".join(f"row {row} is no episode: {why}" for row, why in list(faults.items())[:_MAX_ROWS_NAMED])
    return named + (f"; and {len(faults) - _MAX_ROWS_NAMED} rows more" if len(faults) > _MAX_ROWS_NAMED else "")


def _refusal(store: Store, damaged: Sequence[Damaged], spare: bool) -> str:
    named = "; ".join(f"{file.key} ({file.reason})" for file in damaged[:_MAX_NAMED])
    rest = f" and {len(damaged) - _MAX_NAMED} more" if len(damaged) > _MAX_NAMED else ""
    mend = ", and kb_ray.compact with it makes final files anew from the parts still there" if spare else ""
    return f"trace store {store.uri}: {len(damaged)} damaged: {named}{rest}; --skip-corrupt leaves them out{mend}"


def _nothing(store: Store, damaged: Sequence[Damaged]) -> str:
    if damaged:
        return f"trace store {store.uri}: none of its {len(damaged)} files can be read"
    if store.get(layout.RUN_KEY) is not None:
        return f"trace store {store.uri}: its run has finished no episode yet"
    return f"trace store {store.uri}: no episodes here, name the --output of a run"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
