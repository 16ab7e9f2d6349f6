"""One row of a table -> Task: which columns mean what, wherever the table comes from.

Knows column names of files and of the KernelBench and KernelBook data sets; reads no file and no network.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.folder import problem_number
from kb_ray.tasks.levels import level_of
from kb_ray.tasks.program import InitConvention, read_program

PYTORCH_COLUMNS = ("python_code", "pytorch_code")
"""The program's column in KernelBook as published now, and in earlier descriptions of it."""

CODE_COLUMNS = ("reference_code", *PYTORCH_COLUMNS, "code")
"""Columns that may hold the reference program; the first one that is there counts, wherever the rows come from."""

FIELDS = ("code", "name", "task_id", "level", "problem_id", "uuid", "license", "entry_point", "input_shapes")
"""What a row may say of its task, by the name that its column has unless told otherwise."""

Row = Mapping[str, Any]

_HIGHEST_LEVEL = 99
_BREAKING = frozenset({"Cc", "Zl", "Zp"})
"""Unicode's categories of what has no place in the cell of a table."""


def read_columns(given: Sequence[str], fields: Sequence[str] = FIELDS) -> dict[str, str]:
    """`["code=pytorch_code"]` as {field: column}. Raises ConfigError for what is no such pair, or none of `fields`."""
    columns = dict[str, str]()
    for pair in given:
        field, equals, column = pair.partition("=")
        if not equals or not column or field not in fields:
            raise ConfigError(f"column {pair!r}: give FIELD=COLUMN, with one of the fields {', '.join(fields)}")
        columns[field] = column
    return columns


def check_columns(columns: Mapping[str, str], found: Collection[str], where: str) -> None:
    """Raises ConfigError, naming the columns there are, where a mapping names one that is not."""
    for field, column in columns.items():
        if column not in found:
            raise ConfigError(f"{where}: no column {column}, given for {field}; its columns are: {_listed(found)}")


def code_column(columns: Collection[str], where: str, wanted: tuple[str, ...] = CODE_COLUMNS) -> str:
    """Which column holds the program. Raises ConfigError, naming the columns there are, where none does."""
    for name in wanted:
        if name in columns:
            return name
    raise ConfigError(f"{where}: no column {' or '.join(wanted)}; its columns are: {_listed(columns)}")


def _listed(columns: Collection[str]) -> str:
    return ", ".join(sorted(columns)) or "none"


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

    `task_id` is what the source calls the row; without it the row's own `task_id`, else `file/NAME`. A row without
    a level gets one by the rule of `levels`.
    """
    code = row.get(code_column)
    if not isinstance(code, str):
        raise TaskError(f"{code_column} is {'missing' if code is None else 'no text'}")
    entry_point = _text(row, "entry_point")
    try:
        program = read_program(
            code, entry_point=entry_point, shapes=row.get("input_shapes"), init_convention=init_convention
        )
    except TaskError as error:
        # A row may have other programs beside it.
        raise TaskError(f"{code_column}: {error}") from None
    name = (_text(row, "name") or default_name).removesuffix(".py")
    problem_id, level = whole_number(row, "problem_id"), whole_number(row, "level")
    if level is not None and not 0 <= level <= _HIGHEST_LEVEL:
        raise TaskError(f"level {level}: give a number from 0 to {_HIGHEST_LEVEL}")
    return Task(
        task_id=task_id or _text(row, "task_id") or f"file/{name}",
        source=source,
        level=level_of(code, program.entry_point) if level is None else level,
        name=name,
        problem_id=problem_number(name) if problem_id is None else problem_id,
        reference_code=code,
        style=program.style,
        entry_point=program.entry_point,
        init_convention=program.init_convention,
        input_shapes=program.input_shapes,
        uuid=_text(row, "uuid"),
        license=_license(row),
    )


def _license(row: Row) -> str | None:
    """One licence, or several in a list. Odd ones are passed over: the program is a task without them."""
    told = row.get("license")
    named = told if isinstance(told, list | tuple) else [told]
    return ", ".join(one for one in named if isinstance(one, str) and one and one.isprintable()) or None


def _text(row: Row, column: str) -> str | None:
    value = row.get(column)
    if value is None or value == "":
        return None
    if not isinstance(value, (str, int)):
        raise TaskError(f"{column} is no text: {value!r:.80}")
    text = str(value)
    if not _is_encodable(text):
        raise TaskError(f"{column} holds half a character: {value!r:.80}")
    if any(unicodedata.category(character) in _BREAKING for character in text):
        raise TaskError(f"{column} holds a line end or another control character: {value!r:.80}")
    return text


def _is_encodable(text: str) -> bool:
    """Whether the text can be written: a lone surrogate, as JSON may spell one, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_number(row: Row, column: str) -> int | None:
    """The number in a column, also written as text; None where there is none. TaskError for anything else."""
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
