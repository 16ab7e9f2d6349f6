"""KernelBook: PyTorch modules from public repositories, from the hub.

Its rows name their own class and give constructor arguments as [args, kwargs]. A row's id is its index in
the published order; its uuid is kept beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial

from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.hub import load_split
from kb_ray.tasks.rows import Row, code_column, row_task

DATASET = "GPUMODE/KernelBook"
_INSTEAD = "where the hub is out of reach, give the data set's .parquet with --tasks file:PATH"
_CLASS_COLUMNS = ("entry_point", "module_name")


def kernelbook_entries() -> list[Entry]:
    """Every row, in the published order. Raises ConfigError where the data set cannot be had."""
    rows, columns = load_split(DATASET, "train", _INSTEAD)
    column = code_column(columns, DATASET, ("python_code", "pytorch_code"))
    return [
        Entry(f"kernelbook/{index}", f"{DATASET} row {index}", partial(_task, rows, index, column))
        for index in range(len(rows))
    ]


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
        body = ast.parse(code).body if isinstance(code, str) else []
    except (SyntaxError, ValueError):
        return None
    classes = {node.name for node in body if isinstance(node, ast.ClassDef)}
    return next((row[name] for name in _CLASS_COLUMNS if row.get(name) in classes), None)
