"""Pairs of a PyTorch program and its Triton translation -> sft_train.jsonl and difficulty_labels.jsonl.

One pass over rows as they come, one row in memory at a time. Knows the columns of KernelBook, now and as it
was described earlier; not how a model is trained on the result.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kb_ray.errors import TaskError
from kb_ray.tasks.levels import level_of
from kb_ray.tasks.program import check_syntax, parse
from kb_ray.tasks.rows import Row, check_columns, code_column

SFT_FILE = "sft_train.jsonl"
LABELS_FILE = "difficulty_labels.jsonl"
LABELS = {1: "basic", 2: "fusion", 3: "advanced"}
"""What each level is called in the labels."""
TRITON = "triton_code"
INSTRUCTION = "instruction"
COLUMNS = (TRITON, INSTRUCTION, "entry_point", "module_name")
"""Columns that are read beside the program's."""
_ENTRIES = ("entry_point", "module_name")


@dataclass
class Prepared:
    """What was written."""

    rows: int = 0
    """Lines of the training file."""
    levels: Counter[int] = field(default_factory=Counter)
    """Lines of the label file, by level."""
    skipped: int = 0


def program_column(columns: Collection[str], mapping: Mapping[str, str], where: str) -> str:
    """The column of the PyTorch program. ConfigError where it, the Triton column or a mapped one is missing."""
    check_columns(mapping, columns, where)
    code_column(columns, where, (TRITON,))
    return mapping.get("code") or code_column(columns, where)


def prepare(
    rows: Iterable[tuple[str, Callable[[], Row]]],
    column: str,
    folder: Path,
    on_skip: Callable[[str], None],
) -> Prepared:
    """Writes both files into `folder`, replacing older ones once all is written.

    `rows`: (task id, how to read it); `column` holds the PyTorch program. A row that cannot be used is told
    to `on_skip` with its id and left out; one without a Triton program gets a label only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = Prepared()
    paths = [folder / SFT_FILE, folder / LABELS_FILE]
    parts = [path.with_name(f"{path.name}.part") for path in paths]
    with parts[0].open("w", encoding="utf-8") as sft, parts[1].open("w", encoding="utf-8") as labels:
        for task_id, read in rows:
            try:
                _write(task_id, read(), column, sft, labels, done)
            except TaskError as error:
                done.skipped += 1
                on_skip(f"{task_id}: {error}")
    for part, path in zip(parts, paths, strict=True):
        os.replace(part, path)
    return done


def _write(task_id: str, row: Row, column: str, sft: IO[str], labels: IO[str], done: Prepared) -> None:
    code, triton = _text(row, column), row.get(TRITON)
    if not code:
        raise TaskError(f"{column} is missing")
    parse(code)
    level = level_of(code, next((str(row[name]) for name in _ENTRIES if row.get(name)), None))
    example: dict[str, object] | None = None
    if triton:
        check_syntax(_text(row, TRITON))
        instruction = (
            _text(row, INSTRUCTION) or "Rewrite this PyTorch program as a Triton kernel with the same results."
        )
        example = {"task_id": task_id, "instruction": instruction, "pytorch_code": code, "triton_code": triton}
    # Both or neither: a row that turns out unusable half-way must leave no trace in one of the files.
    labels.write(json.dumps({"task_id": task_id, "level": level, "label": LABELS[level]}) + "\n")
    done.levels[level] += 1
    if example is not None:
        sft.write(json.dumps({**example, "level": level}, ensure_ascii=False) + "\n")
        done.rows += 1


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    if value is not None and not isinstance(value, str):
        raise TaskError(f"{column} is no text: {value!r:.80}")
    return value or ""
