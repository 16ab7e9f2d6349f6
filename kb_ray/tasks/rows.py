"""One row of a table -> Task: which columns mean what, wherever the table comes from.

Knows column names of files and of the KernelBench and KernelBook data sets; reads no file and no network.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.folder import problem_number
from kb_ray.tasks.program import InitConvention, read_program

CODE_COLUMNS = ("reference_code", "pytorch_code", "python_code", "code")
"""Columns that may hold the reference program; the first one that is there counts."""

Row = Mapping[str, Any]


def code_column(columns: Collection[str], where: str, wanted: tuple[str, ...] = CODE_COLUMNS) -> str:
    """Which column holds the program. Raises ConfigError, naming the columns there are, where none does."""
    for name in wanted:
        if name in columns:
            return name
    found = ", ".join(sorted(columns)) or "none"
    raise ConfigError(f"{where}: no column {' or '.join(wanted)}; its columns are: {found}")


def row_task(
    row: Row,
    *,
    code_column: str,
    source: str,
    default_name: str,
    task_id: str | None = None,
    init_convention: InitConvention | None = None,
) -> Task:
    """The task of one row. Raises TaskError where a needed value is missing or of the wrong kind.

    `task_id` is what the source calls the row; without it the row's own `task_id`, else `file/NAME`.
    """
    code = row.get(code_column)
    if not isinstance(code, str):
        raise TaskError(f"{code_column} is {'missing' if code is None else 'no text'}")
    program = read_program(
        code,
        entry_point=_text(row, "entry_point"),
        shapes=row.get("input_shapes"),
        init_convention=init_convention,
    )
    name = (_text(row, "name") or default_name).removesuffix(".py")
    problem_id = _number(row, "problem_id")
    return Task(
        task_id=task_id or _text(row, "task_id") or f"file/{name}",
        source=source,
        level=_number(row, "level"),
        name=name,
        problem_id=problem_number(name) if problem_id is None else problem_id,
        reference_code=code,
        style=program.style,
        entry_point=program.entry_point,
        init_convention=program.init_convention,
        input_shapes=program.input_shapes,
        uuid=_text(row, "uuid"),
    )


def _text(row: Row, column: str) -> str | None:
    value = row.get(column)
    if value is None or value == "":
        return None
    if not isinstance(value, (str, int)):
        raise TaskError(f"{column} is no text: {value!r:.80}")
    return str(value)


def _number(row: Row, column: str) -> int | None:
    value = row.get(column)
    # NaN is how data frames write a missing number.
    if value is None or value == "" or value != value:
        return None
    try:
        if isinstance(value, bool) or float(value) != int(value):
            raise ValueError(value)
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TaskError(f"{column} is no whole number: {value!r:.80}") from error
