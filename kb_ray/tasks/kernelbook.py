"""KernelBook: PyTorch modules from public repositories, from the hub or from an export to one file.

Its rows name their own class and give constructor arguments as [args, kwargs]. A row's id is its index in
the published order; its uuid is kept beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from functools import partial

from kb_ray.errors import TaskError
from kb_ray.records import Task
from kb_ray.tasks.hub import SplitRows, load_split
from kb_ray.tasks.program import parse
from kb_ray.tasks.rows import PYTORCH_COLUMNS, Row, code_column, row_task
from kb_ray.tasks.table import Rows, Table, file_rows

DATASET = "GPUMODE/KernelBook"
_INSTEAD = (
    "where the hub is out of reach, give the data set's .parquet as kernelbook:PATH, or put it into a folder "
    f"{DATASET} of the current one"
)
CODE_COLUMNS = PYTORCH_COLUMNS
"""Columns of its program; the first one that is there counts."""
_CLASS_COLUMNS = ("entry_point", "module_name")


def kernelbook_table(path: str | None = None, wanted: Collection[str] = ()) -> Table:
    """Every row, in the published order, with the columns of tasks and `wanted` ones.

    `path`: a .parquet or .jsonl file with the hub's columns; without it the hub is asked. Raises ConfigError
    where the data set cannot be had or lacks its program.
    """
    columns, rows = _rows(path, {*CODE_COLUMNS, "uuid", "licenses", *_CLASS_COLUMNS, *wanted}, _INSTEAD)
    column = code_column(columns, f"kernelbook:{path}" if path else DATASET, CODE_COLUMNS)
    return Table(columns, [f"kernelbook/{index}" for index in range(len(rows))], rows, partial(_task, column))


def kernelbook_rows(
    wanted: Collection[str], instead: str = _INSTEAD
) -> tuple[list[str], Iterator[tuple[str, Callable[[], Row]]]]:
    """(names of all columns, (task id, how to read it) of every row), with the columns that are `wanted`.

    Raises ConfigError like `kernelbook_table`; `instead` tells how to use a local copy.
    """
    columns, rows = _rows(None, wanted, instead)
    return sorted(columns), ((f"kernelbook/{index}", read) for index, (_, read) in enumerate(rows))


def _rows(path: str | None, wanted: Collection[str], instead: str) -> tuple[frozenset[str], Rows]:
    if path is not None:
        columns, rows = file_rows(path, wanted, f"kernelbook:{path}")
        return columns, [(f"{path} {where}", read) for where, read in rows]
    split, names = load_split(DATASET, "train", instead)
    published = SplitRows(split.select_columns([name for name in names if name in wanted]))
    return frozenset(names), [
        (f"{DATASET} row {index}", partial(published.__getitem__, index)) for index in range(len(published))
    ]


def _task(column: str, index: int, row: Row) -> Task:
    name = _class_name(row, row.get(column))
    return row_task(
        {
            column: row.get(column),
            "entry_point": name,
            "name": name or row.get("module_name"),
            "uuid": row.get("uuid"),
            "license": row.get("licenses"),
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
    named = [row.get(name) for name in _CLASS_COLUMNS]
    return next((name for name in named if isinstance(name, str) and name in classes), None)
