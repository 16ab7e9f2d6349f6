"""Tables with a row per task, and the .parquet and .jsonl files that hold such.

Knows the two formats' files, and reads no more of them than tasks need: of Parquet the columns that mean
something, of JSON lines the places where they begin. What a row means is rows.py's business.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.folder import given_path
from kb_ray.tasks.parquet import ParquetRows
from kb_ray.tasks.rows import CODE_COLUMNS, FIELDS, Row, check_columns, code_column, row_task

Rows = list[tuple[str, Callable[[], Row]]]
"""(where it stands, how to read it) of each row, in order."""


@dataclass(frozen=True)
class Table:
    """Rows that are not read yet, and what makes a task of each: for a run and for training files alike."""

    columns: frozenset[str]
    """Names of all columns, those that are not read included."""
    keys: list[str]
    """`Entry.key` of each row."""
    rows: Rows
    task: Callable[[int, Row], Task]
    """The task of the row of this index. Raises TaskError where it is none."""

    def entries(self) -> list[Entry]:
        """The rows as tasks that could be used, in order."""
        return [
            Entry(key, where, partial(self._make, index, read))
            for index, (key, (where, read)) in enumerate(zip(self.keys, self.rows, strict=True))
        ]

    def _make(self, index: int, read: Callable[[], Row]) -> Task:
        return self.task(index, read())


def file_table(path: str, columns: Mapping[str, str] | None = None, wanted: Collection[str] = ()) -> Table:
    """Every row of the file. `columns`: {field: column} where they have names of their own; `wanted`: further ones.

    Raises ConfigError where it cannot be read or lacks a column.
    """
    columns, spec = columns or {}, f"file:{path}"
    found, rows = file_rows(path, {*columns.values(), *wanted})
    check_columns(columns, found, spec)
    column = columns.get("code") or code_column(found, spec)
    names = [f"{Path(path).stem}_{index}" for index in range(len(rows))]

    def task(index: int, row: Row) -> Task:
        named = {**row, **{field: row.get(name) for field, name in columns.items()}}
        return row_task(named, code_column=column, source="file", default_name=names[index])

    where = Path(os.path.expanduser(path))
    return Table(found, [f"file/{name}" for name in names], [(f"{where} {at}", read) for at, read in rows], task)


def file_rows(path: str, wanted: Collection[str] = (), spec: str | None = None) -> tuple[frozenset[str], Rows]:
    """(names of all its columns, its rows): of each row the columns that tasks may have, and `wanted` ones.

    Raises ConfigError where the file cannot be read or holds no row; it names `spec`, else `file:PATH`.
    """
    spec = spec or f"file:{path}"
    file = given_path(path, spec)
    if not file.is_file():
        raise ConfigError(f"{spec}: {'not a file' if file.exists() else 'no such file'}")
    readers = {".parquet": _parquet, ".jsonl": _jsonl}
    if file.suffix not in readers:
        raise ConfigError(f"{spec}: give a .parquet or .jsonl file with one row per task")
    try:
        columns, rows = readers[file.suffix](file, frozenset({*wanted, *CODE_COLUMNS, *FIELDS}))
    except OSError as error:
        raise ConfigError(f"{spec}: cannot be read: {error.strerror or error}") from error
    if not rows:
        raise ConfigError(f"{spec}: holds no row")
    if not columns:
        raise ConfigError(f"{spec}: no line is a JSON object")
    return columns, rows


def _parquet(file: Path, wanted: frozenset[str]) -> tuple[frozenset[str], Rows]:
    rows = ParquetRows(file, wanted)
    return rows.names, [(f"row {index}", partial(rows.__getitem__, index)) for index in range(len(rows))]


def _jsonl(file: Path, wanted: frozenset[str]) -> tuple[frozenset[str], Rows]:
    places, keys = list[tuple[int, int]](), set[str]()
    for number, offset, line in _lines(file):
        places.append((number, offset))
        try:
            keys |= _json_row(line).keys()
        except TaskError:
            continue
    return frozenset(keys), [(f"line {number}", partial(_read_line, file, offset)) for number, offset in places]


def _lines(file: Path) -> Iterator[tuple[int, int, bytes]]:
    """(number from 1, offset in bytes, content) of each line that is not blank."""
    offset = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, offset, line
            offset += len(line)


def _read_line(file: Path, offset: int) -> Row:
    try:
        with file.open("rb") as lines:
            lines.seek(offset)
            return _json_row(lines.readline())
    except OSError as error:
        raise TaskError(f"cannot be read: {error.strerror or error}") from error


def _json_row(line: bytes) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise TaskError(f"is not JSON: {(str(error).splitlines() or [type(error).__name__])[0]}") from None
    except RecursionError:
        raise TaskError("is JSON nested too deeply to be a task") from None
    if not isinstance(row, dict):
        raise TaskError("is no JSON object")
    return row
