"""Tasks from one .parquet or .jsonl file with a row per task.

Knows the two formats, and reads no more of a file than tasks need: of Parquet the columns that mean
something, of JSON lines the places where they begin. What a row means is rows.py's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.rows import CODE_COLUMNS, FIELDS, Row, check_columns, code_column, row_task

Rows = list[tuple[str, Callable[[], Row]]]
"""(where it stands, how to read it) of each row, in order."""


def file_entries(path: str, columns: Mapping[str, str] | None = None) -> list[Entry]:
    """Every row of the file. `columns`: {field: column} where they have names of their own.

    Raises ConfigError where it cannot be read or lacks a column.
    """
    columns = columns or {}
    found, rows = file_rows(path, columns.values())
    check_columns(columns, found, f"file:{path}")
    column = columns.get("code") or code_column(found, f"file:{path}")
    return _entries(Path(path).expanduser(), rows, column, columns)


def file_rows(path: str, wanted: Collection[str] = ()) -> tuple[frozenset[str], Rows]:
    """(names of all its columns, its rows): of each row the columns that tasks may have, and `wanted` ones.

    Raises ConfigError where the file cannot be read or holds no row.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"file:{path}: {'not a file' if file.exists() else 'no such file'}")
    readers = {".parquet": _parquet, ".jsonl": _jsonl}
    if file.suffix not in readers:
        raise ConfigError(f"file:{path}: give a .parquet or .jsonl file with one row per task")
    try:
        return readers[file.suffix](file, frozenset({*wanted, *CODE_COLUMNS, *FIELDS}))
    except OSError as error:
        raise ConfigError(f"file:{path}: cannot be read: {error.strerror or error}") from error


def _parquet(file: Path, wanted: frozenset[str]) -> tuple[frozenset[str], Rows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(file).names
        table = pq.read_table(file, columns=[name for name in names if name in wanted])
    except pa.ArrowException as error:
        raise ConfigError(f"file:{file}: is no readable Parquet file: {_first_line(error)}") from error
    if pq.read_metadata(file).num_rows == 0:
        raise ConfigError(f"file:{file}: holds no row")

    def read(index: int) -> Row:
        return {name: table[name][index].as_py() for name in table.column_names}

    return frozenset(names), [(f"row {i}", partial(read, i)) for i in range(table.num_rows)]


def _jsonl(file: Path, wanted: frozenset[str]) -> tuple[frozenset[str], Rows]:
    places, keys = list[tuple[int, int]](), set[str]()
    for number, offset, line in _lines(file):
        places.append((number, offset))
        try:
            keys |= _json_row(line).keys()
        except TaskError:
            continue
    if not places:
        raise ConfigError(f"file:{file}: holds no row")
    if not keys:
        raise ConfigError(f"file:{file}: no line is a JSON object")
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
        raise TaskError(f"is not JSON: {_first_line(error)}") from None
    except RecursionError:
        raise TaskError("is JSON nested too deeply to be a task") from None
    if not isinstance(row, dict):
        raise TaskError("is no JSON object")
    return row


def _entries(file: Path, rows: Rows, column: str, columns: Mapping[str, str]) -> list[Entry]:
    def make(read: Callable[[], Row], default_name: str) -> Task:
        row = read()
        row = {**row, **{field: row.get(name) for field, name in columns.items()}}
        return row_task(row, code_column=column, source="file", default_name=default_name)

    names = [f"{file.stem}_{index}" for index in range(len(rows))]
    return [
        Entry(f"file/{name}", f"{file} {where}", partial(make, read, name))
        for name, (where, read) in zip(names, rows, strict=True)
    ]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
