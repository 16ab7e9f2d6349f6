"""One file of a store, looked through row by row: its hash, its schema, its rows, and what is wrong within each.

Reads; holds one batch of rows. What rows of several files say of each other is accounting's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.records import Episode
from kb_ray.traces.columns import SCHEMA, SCHEMA_VERSION, VERSION_KEY
from kb_ray.traces.content_hash import digest, in_name
from kb_ray.traces.schema import conform, fault, must_be_known, row_to_episode
from kb_ray.traces.store import Reader, Store, open_store
from kb_ray.verifying.episode import faults_of
from kb_ray.verifying.findings import Fault, FileRows, Row
from kb_ray.verifying.moments import moment_of
from kb_ray.verifying.opening import opening_faults
from kb_ray.verifying.rules import Rules
from kb_ray.verifying.task import marks, task_faults

_BATCH_ROWS = 64
_UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, OverflowError)


def look_through(store: Store, key: str, rules: Rules, expected_hash: str = "") -> FileRows:
    """Everything about the file that can be said without others. `expected_hash`: from a manifest.

    ConfigError where a newer kb_ray wrote it, StoreError where the store fails.
    """
    faults: list[Fault] = []
    rows: list[Row] = []
    count = 0
    with store.open(key) as source:
        expected = expected_hash or in_name(key)
        if expected and not digest(source).startswith(expected):
            what = "its content is not what was written: cut off, or changed since"
            return FileRows(key, (), 0, (Fault(kind="file", part=key, what=what),))
        source.seek(0)
        for number, row, held in _readable(source, store, key, faults):
            count = number + 1
            _judge(number, row, held, key, rules, rows, faults)
    return FileRows(key, tuple(rows), count, tuple(faults))


def look_through_at(uri: str, key: str, rules: Rules, expected_hash: str) -> FileRows:
    """The same in a process of its own."""
    return look_through(open_store(uri), key, rules, expected_hash)


def _readable(
    source: Reader, store: Store, key: str, faults: list[Fault]
) -> Iterator[tuple[int, dict[str, Any], list[str]]]:
    """(number, row, columns of the file) for each of its rows, as far as it can be read; what is wrong with the file
    goes to `faults`.
    """
    try:
        file = _opened(source, store, key)
        faults += _schema(file.schema_arrow, key)
        rows = _rows(file)
    except _UNREADABLE as error:
        faults.append(_unreadable(key, error))
        return
    while True:
        try:
            row = next(rows, None)
        except _UNREADABLE as error:
            faults.append(_unreadable(key, error))
            return
        if row is None:
            return
        yield row


def _unreadable(key: str, error: BaseException) -> Fault:
    return Fault(kind="file", part=key, what=f"cannot be read: {' '.join(str(error).split())[:200]}")


def _opened(source: Reader, store: Store, key: str) -> pq.ParquetFile:
    file = pq.ParquetFile(source, pre_buffer=True)
    must_be_known(file.schema_arrow, f"trace store {store.uri}: {key}")
    return file


def _schema(schema: pa.Schema, key: str) -> Iterator[Fault]:
    written = int((schema.metadata or {}).get(VERSION_KEY, b"0"))
    more = [name for name in schema.names if name not in SCHEMA.names]
    if not written:
        yield Fault(kind="schema", part=key, what="does not say which schema version its columns are of")
    if written == SCHEMA_VERSION and not schema.equals(SCHEMA):
        names = [field.name for field in SCHEMA if field.name not in schema.names or schema.field(field.name) != field]
        what = f"columns are not those of schema version {written}: {', '.join([*names, *more]) or 'another order'}"
        yield Fault(kind="schema", part=key, what=what)
    elif more:
        yield Fault(kind="schema", part=key, what=f"columns that no schema version has: {', '.join(more)}")


def _rows(file: pq.ParquetFile) -> Iterator[tuple[int, dict[str, Any], list[str]]]:
    held = [name for name in SCHEMA.names if name in file.schema_arrow.names]
    number = 0
    for batch in file.iter_batches(_BATCH_ROWS, columns=held, use_threads=False):
        for row in conform(pa.Table.from_batches([batch])).to_pylist():
            yield number, row, held
            number += 1


def _judge(
    number: int, row: dict[str, Any], held: Collection[str], key: str, rules: Rules, rows: list[Row],
    faults: list[Fault],
) -> None:  # fmt: skip
    try:
        episode = row_to_episode(row)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        what = f"is no episode: {fault(row)}"
        faults.append(Fault(kind="row", part=key, episode=f"row {number}", what=what))
        return
    rows.append(_row(episode, held))
    name = f"{episode.task.task_id} sample {episode.sample} attempt {episode.attempt}"
    try:
        found = chain(faults_of(episode, rules, row), task_faults(episode.task), opening_faults(episode, rules))
        for kind, what in found:
            faults.append(Fault(kind=kind, part=key, episode=name, what=what))
    except Exception as error:
        # What cannot even be looked at is told like any fault: others must still be found.
        what = f"cannot be compared with what it says of itself ({type(error).__name__}: {error})"
        faults.append(Fault(kind="row", part=key, episode=name, what=what))


def _row(episode: Episode, held: Collection[str]) -> Row:
    return Row(
        episode_id=episode.episode_id,
        task_id=episode.task.task_id,
        sample=episode.sample,
        attempt=episode.attempt,
        stop_reason=episode.stop_reason,
        correct=any(turn.verdict.correct for turn in episode.turns),
        content=_short_hash(episode.model_dump_json()),
        task=marks(episode.task, held),
        ended=moment_of(episode.created_at),
    )


def _short_hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]
