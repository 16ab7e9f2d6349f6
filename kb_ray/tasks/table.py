"""Tasks from one .parquet or .jsonl file with a row per task.

Knows the two formats; what a row means is rows.py's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.rows import Row, code_column, row_task


def file_entries(path: str) -> list[Entry]:
    """Every row of the file. Raises ConfigError where it cannot be read or has no column with programs."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"file:{path}: {'not a file' if file.exists() else 'no such file'}")
    readers = {".parquet": _parquet, ".jsonl": _jsonl}
    if file.suffix not in readers:
        raise ConfigError(f"file:{path}: give a .parquet or .jsonl file with one row per task")
    try:
        return readers[file.suffix](file)
    except OSError as error:
        raise ConfigError(f"file:{path}: cannot be read: {error.strerror or error}") from error


def _parquet(file: Path) -> list[Entry]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except pa.ArrowException as error:
        raise ConfigError(f"file:{file}: is no readable Parquet file: {_first_line(error)}") from error
    column = code_column(table.column_names, f"file:{file}")
    if table.num_rows == 0:
        raise ConfigError(f"file:{file}: holds no row")

    def read(index: int) -> Row:
        return {name: table[name][index].as_py() for name in table.column_names}

    return _entries(file, [(f"row {i}", partial(read, i)) for i in range(table.num_rows)], column)


def _jsonl(file: Path) -> list[Entry]:
    lines = [(number, line) for number, line in enumerate(file.read_bytes().split(b"\n"), start=1) if line.strip()]
    if not lines:
        raise ConfigError(f"file:{file}: holds no row")
    rows = [(f"line {number}", _json_row(line)) for number, line in lines]
    keys = {key for _, row in rows if not isinstance(row, TaskError) for key in row}
    if not keys:
        raise ConfigError(f"file:{file}: no line is a JSON object")
    return _entries(file, [(where, partial(_given, row)) for where, row in rows], code_column(keys, f"file:{file}"))


def _json_row(line: bytes) -> Row | TaskError:
    try:
        row = json.loads(line)
    except ValueError as error:
        return TaskError(f"is not JSON: {_first_line(error)}")
    return row if isinstance(row, dict) else TaskError("is no JSON object")


def _given(row: Row | TaskError) -> Row:
    if isinstance(row, TaskError):
        raise row
    return row


def _entries(file: Path, rows: Sequence[tuple[str, Callable[[], Row]]], column: str) -> list[Entry]:
    def make(read: Callable[[], Row], default_name: str) -> Task:
        return row_task(read(), code_column=column, source="file", default_name=default_name)

    names = [f"{file.stem}_{index}" for index in range(len(rows))]
    return [
        Entry(f"file/{name}", f"{file} {where}", partial(make, read, name))
        for name, (where, read) in zip(names, rows, strict=True)
    ]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
