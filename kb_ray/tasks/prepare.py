"""Pairs of a PyTorch program and its Triton translation -> sft_train.jsonl and difficulty_labels.jsonl.

One pass over a table, one row in memory at a time. A row's id, program and level are those of the task that a run
makes of it. Knows neither where the table comes from nor how a model is trained on the result.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kb_ray.errors import TaskError
from kb_ray.records import Task
from kb_ray.tasks.program import check_syntax
from kb_ray.tasks.rows import Row, check_columns, code_column
from kb_ray.tasks.table import Table

SFT_FILE = "sft_train.jsonl"
LABELS_FILE = "difficulty_labels.jsonl"
LABELS = {1: "basic", 2: "fusion", 3: "advanced"}
"""What each level is called in the labels; levels beyond these are called as the nearest."""
TRITON = "triton_code"
INSTRUCTION = "instruction"
_INSTRUCTION = "Rewrite this PyTorch program as a Triton kernel with the same results."


@dataclass(frozen=True)
class PairColumns:
    """Where a table has what makes a task a pair."""

    triton: str = TRITON
    instruction: str = INSTRUCTION

    @classmethod
    def of(cls, columns: Mapping[str, str]) -> PairColumns:
        """Those of {field: column}, else as KernelBook calls them."""
        return cls(columns.get(TRITON, TRITON), columns.get(INSTRUCTION, INSTRUCTION))


@dataclass
class Prepared:
    """What was written."""

    rows: int = 0
    """Lines of the training file."""
    labels: Counter[str] = field(default_factory=Counter)
    """Lines of the label file, by label."""
    skipped: int = 0


def check_pairs(table: Table, given: Mapping[str, str], where: str) -> None:
    """ConfigError where a table lacks the Triton programs, or a column that was given as {field: column}."""
    check_columns(given, table.columns, where)
    code_column(table.columns, where, (PairColumns.of(given).triton,))


def prepare(
    table: Table,
    columns: PairColumns,
    folder: Path,
    on_skip: Callable[[str], None],
    limit: int | None = None,
) -> Prepared:
    """Writes both files into `folder`, replacing older ones once all is written.

    A row that is no task, or whose kernel is no Python, is told to `on_skip` with its place and left out; one
    without a Triton program gets a label only. `limit`: the first rows only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writing = _Writing(columns)
    paths = [folder / SFT_FILE, folder / LABELS_FILE]
    parts = [path.with_name(f"{path.name}.part") for path in paths]
    with parts[0].open("w", encoding="utf-8") as sft, parts[1].open("w", encoding="utf-8") as labels:
        for index, (where, read) in enumerate(table.rows[:limit]):
            try:
                row = read()
                writing.write(table.task(index, row), row, sft, labels)
            except TaskError as error:
                writing.done.skipped += 1
                on_skip(f"{where}: {error}")
    for part, path in zip(parts, paths, strict=True):
        os.replace(part, path)
    return writing.done


class _Writing:
    """What was written so far, and which program each id stands for."""

    def __init__(self, columns: PairColumns) -> None:
        self.columns, self.done = columns, Prepared()
        self._programs = dict[str, int]()

    def write(self, task: Task, row: Row, sft: IO[str], labels: IO[str]) -> None:
        """Adds the lines of one task. Raises TaskError, and adds none, where it cannot be used."""
        digest = hash(task.reference_code)
        known = self._programs.get(task.task_id)
        if known is not None and known != digest:
            raise TaskError(f"another program is already called {task.task_id}")
        triton, level = _text(row, self.columns.triton), 1 if task.level is None else task.level
        example: dict[str, object] | None = None
        if triton:
            _check_kernel(triton, self.columns.triton)
            example = {
                "task_id": task.task_id,
                "instruction": _text(row, self.columns.instruction) or _INSTRUCTION,
                "pytorch_code": task.reference_code,
                "triton_code": triton,
                "level": level,
            }
        # Both or neither: a row that turns out unusable half-way must leave no trace in one of the files.
        if known is None:
            self._programs[task.task_id] = digest
            label = LABELS[min(max(level, 1), max(LABELS))]
            labels.write(json.dumps({"task_id": task.task_id, "level": level, "label": label}) + "\n")
            self.done.labels[label] += 1
        if example is not None:
            sft.write(json.dumps(example, ensure_ascii=False) + "\n")
            self.done.rows += 1


def _check_kernel(code: str, column: str) -> None:
    """TaskError naming the column: the row has another program, which may have faults too."""
    try:
        check_syntax(code)
    except TaskError as error:
        raise TaskError(f"{column}: {error}") from None


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    if value is not None and not isinstance(value, str):
        raise TaskError(f"{column} is no text: {value!r:.80}")
    if value is not None and not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise TaskError(f"{column} holds half of a surrogate pair, which no file can hold")
    return value or ""
