"""Which episodes a store holds already, read from a few columns only.

Does not decide which are to be tried again: it says how each ended, the driver chooses.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.errors import StoreError
from kb_ray.records import StopReason
from kb_ray.traces.layout import sources
from kb_ray.traces.part_index import FACTS, read_index
from kb_ray.traces.schema import SCHEMA, check_version
from kb_ray.traces.store import Reader, Store

_READERS = 16
_WHOLE_FILES_AHEAD = 3
_SMALL_BYTES = 256 * 1024
_COLUMNS = FACTS
_FEW = 64
"""So many parts are opened faster than it is found out whether an index tells of them."""


@dataclass(frozen=True)
class FinishedEpisode:
    """The highest attempt of a (task, sample) in the store, and where its row is."""

    episode_id: str
    attempt: int
    stop_reason: StopReason
    correct: bool
    """Whether any of its turns was correct."""
    key: str
    """Key of the file."""
    row: int
    """0-based row in the file."""


def finished(store: Store) -> dict[tuple[str, int], FinishedEpisode]:
    """(task_id, sample) -> its highest attempt; of two rows of one attempt, the one that was written first.

    Empty for a store that does not exist yet. StoreError where a file cannot be read.
    """
    return latest_rows(store, sources(store))


def latest_rows(store: Store, keys: Sequence[str]) -> dict[tuple[str, int], FinishedEpisode]:
    """What `finished` says, of the episodes in these files alone."""
    latest: dict[tuple[str, int], FinishedEpisode] = {}
    for key, table in _facts(store, keys):
        columns = [table.column(name).to_pylist() for name in _COLUMNS]
        for row, (episode_id, task_id, sample, attempt, stop_reason, correct) in enumerate(zip(*columns, strict=True)):
            known = latest.get((task_id, sample))
            if known is None or attempt > known.attempt:
                try:
                    reason = StopReason(stop_reason)
                except ValueError:
                    raise StoreError(
                        f"trace store {store.uri}: {key}: row {row} ended with {stop_reason!r}, which nothing ends "
                        "with: move the file away to go on"
                    ) from None
                latest[task_id, sample] = FinishedEpisode(episode_id, attempt, reason, correct, key, row)
    return latest


def _facts(store: Store, keys: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """(key, table of the facts) for each file, in order: from an index where one tells of it."""
    told = read_index(store) if len(keys) > _FEW else {}
    others = read_columns(store, [key for key in keys if key not in told], _COLUMNS)
    for key in keys:
        yield (key, told[key]) if key in told else next(others)


def read_columns(store: Store, keys: Iterable[str], columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """(key, table of these columns) for each file, in order; read ahead in parallel, for few small columns."""
    return _read_ahead(store, keys, columns, 2 * _READERS)


def read_rows(store: Store, keys: Iterable[str]) -> Iterator[tuple[str, pa.Table]]:
    """(key, whole table) for each file, in order; a few files are in memory at a time."""
    return _read_ahead(store, keys, SCHEMA.names, _WHOLE_FILES_AHEAD)


def _read_ahead(
    store: Store, keys: Iterable[str], columns: Sequence[str], ahead: int
) -> Iterator[tuple[str, pa.Table]]:
    running: deque[tuple[str, Future[pa.Table]]] = deque()
    remaining = iter(keys)
    with ThreadPoolExecutor(min(_READERS, ahead), thread_name_prefix="trace-reader") as readers:
        try:
            while True:
                for key in islice(remaining, ahead - len(running)):
                    running.append((key, readers.submit(_read_file, store, key, columns)))
                if not running:
                    return
                key, table = running.popleft()
                yield key, table.result()
        finally:
            readers.shutdown(cancel_futures=True)


def _parquet(source: Reader) -> pq.ParquetFile:
    """The file, a small one read at once: a run leaves thousands, and each look through Python has its price."""
    size = source.seek(0, io.SEEK_END)
    source.seek(0)
    if size <= _SMALL_BYTES:
        return pq.ParquetFile(pa.BufferReader(source.read() or b""))
    return pq.ParquetFile(source, pre_buffer=True)


def _read_file(store: Store, key: str, columns: Sequence[str]) -> pa.Table:
    """The named columns of one file, older files without the newest. StoreError names an unreadable file."""
    with store.open(key) as source:
        try:
            file = _parquet(source)
            check_version(file.schema_arrow)
            if not set(_COLUMNS) <= set(file.schema_arrow.names):
                raise pa.ArrowInvalid(f"no columns {', '.join(_COLUMNS)}")
            # Threads within a file would only compete with the threads over files.
            return file.read(columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise StoreError(
                f"trace store {store.uri}: {key} is not a readable trace file, move it away ({reason})"
            ) from error
