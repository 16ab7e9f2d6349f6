"""KernelBook: PyTorch modules from public repositories, from the hub.

Its rows name their own class and give constructor arguments as [args, kwargs]. A row's id is its index in
the published order; its uuid is kept beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

from kb_ray.errors import TaskError
from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.hub import load_split
from kb_ray.tasks.program import parse
from kb_ray.tasks.rows import Row, code_column, row_task

DATASET = "GPUMODE/KernelBook"
_INSTEAD = "where the hub is out of reach, give the data set's .parquet with --tasks file:PATH"
CODE_COLUMNS = ("python_code", "pytorch_code")
"""The program's column as published now, and in earlier descriptions of the data set."""
_BATCH = 256
_CLASS_COLUMNS = ("entry_point", "module_name")


def kernelbook_entries() -> list[Entry]:
    """Every row, in the published order. Raises ConfigError where the data set cannot be had."""
    rows, columns = load_split(DATASET, "train", _INSTEAD)
    column = code_column(columns, DATASET, CODE_COLUMNS)
    rows = rows.select_columns([name for name in columns if name in {column, "uuid", *_CLASS_COLUMNS}])
    return [
        Entry(f"kernelbook/{index}", f"{DATASET} row {index}", partial(_task, rows, index, column))
        for index in range(len(rows))
    ]


def kernelbook_rows(
    wanted: Collection[str], instead: str = _INSTEAD
) -> tuple[list[str], Iterator[tuple[str, Callable[[], Row]]]]:
    """(names of all columns, (task id, how to read it) of every row), with the columns that are `wanted`.

    Raises ConfigError like `kernelbook_entries`; `instead` tells how to use a local copy.
    """
    rows, columns = load_split(DATASET, "train", instead)
    return columns, _streamed(rows.select_columns([name for name in columns if name in wanted]))


def _streamed(rows: Any) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Rows a batch at a time: one by one takes ten times as long."""
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        for offset in range(len(next(iter(batch.values())))):
            row = {name: values[offset] for name, values in batch.items()}
            yield f"kernelbook/{start + offset}", partial(dict, row)


def _task(rows: Sequence[Row], index: int, column: str) -> Task:
    row = rows[index]
    name = _class_name(row, row.get(column))
    return row_task(
        {
            column: row.get(column),
            "entry_point": name,
            "name": name or row.get("module_name"),
            "uuid": row.get("uuid"),
        },
        code_column=column,
        source="kernelbook",
        default_name=f"row_{index}",
        task_id=f"kernelbook/{index}",
        init_convention="args_kwargs",
    )


def _class_name(row: Row, code: object) -> str | None:
    """The class that the row names, if its code defines it; else None, and it is guessed from the code."""
    try:
        body = parse(code).body if isinstance(code, str) else []
    except TaskError:
        return None
    classes = {node.name for node in body if isinstance(node, ast.ClassDef)}
    return next((row[name] for name in _CLASS_COLUMNS if row.get(name) in classes), None)
