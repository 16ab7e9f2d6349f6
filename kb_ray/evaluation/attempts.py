"""Which attempt of an episode counts in rates: the first that was judged; where none was, the last.

To count the second answer of those that failed at first would make their sample the best of two, and theirs alone; and
an attempt that our own side or the model's server ended is no answer. Knows columns and rows, no metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kb_ray.records import REDONE_ON_RESUME
from kb_ray.traces.reading import Survey, read_file
from kb_ray.traces.resume import read_columns
from kb_ray.traces.schema import fault

Key = tuple[str, int]
"""(task_id, sample)."""
_COLUMNS = ("task_id", "sample", "attempt", "stop_reason")
_UNJUDGED = frozenset(reason.value for reason in REDONE_ON_RESUME)


class _Row(NamedTuple):
    """An attempt, and where it is."""

    attempt: int
    judged: bool
    file: str
    row: int


@dataclass(frozen=True)
class Counted:
    """The episodes of a store as rates see them."""

    found: Survey
    """Each (task, sample) once, in the attempt that counts."""
    retried: frozenset[Key]
    """Those that the store holds more than one attempt of."""


def counted(found: Survey) -> Counted:
    """The survey again, each episode in the attempt that counts. StoreError where the store fails on the way.

    Reads four more columns where the store holds more rows than episodes, and whole files where rows are damaged.
    """
    if not found.superseded:
        return Counted(found, frozenset())
    attempts: dict[Key, list[_Row]] = {}
    for key, row in _rows(found):
        attempts.setdefault(key, []).append(row)
    chosen: dict[str, list[int]] = {file: [] for file in found.files}
    for held in attempts.values():
        one = _that_counts(held)
        chosen[one.file].append(one.row)
    rows = {file: tuple(sorted(held)) for file, held in chosen.items() if held}
    retried = frozenset(key for key, held in attempts.items() if len({row.attempt for row in held}) > 1)
    return Counted(replace(found, rows=rows), retried)


def keys_of(found: Survey) -> frozenset[Key]:
    """Every episode of a survey, whichever attempt counts. StoreError where the store fails."""
    return frozenset(key for key, _ in _rows(found))


def _that_counts(held: Sequence[_Row]) -> _Row:
    """Of two rows of one attempt the one that was written first, as for all readers."""
    judged = [row for row in held if row.judged]
    return min(judged, key=lambda row: row.attempt) if judged else max(held, key=lambda row: row.attempt)


def _rows(found: Survey) -> Iterator[tuple[Key, _Row]]:
    broken = {damage.key for damage in found.damaged}
    for file, table in read_columns(found.store, found.files, _COLUMNS):
        faults = _faults(found, file, table.num_rows) if file in broken else frozenset()
        columns = [table.column(name).to_pylist() for name in _COLUMNS]
        for row, (task_id, sample, attempt, reason) in enumerate(zip(*columns, strict=True)):
            if row not in faults:
                yield (task_id, sample), _Row(attempt, reason not in _UNJUDGED, file, row)


def _faults(found: Survey, file: str, rows: int) -> frozenset[int]:
    """Rows of a file that are no episodes: the survey left them out, and tells them in words only."""
    tables = read_file(found.store, file, range(rows))
    every = (row for table in tables for row in table.to_pylist())
    return frozenset(number for number, row in enumerate(every) if fault(row))
