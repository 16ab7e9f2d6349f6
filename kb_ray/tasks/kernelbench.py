"""KernelBench: from a local checkout (KernelBench/level1/19_ReLU.py), from an export to one file, or from the hub.

Knows the layout of each; all give the same ids, `kernelbench/1/19_ReLU`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.folder import file_entry, given_path, level_folders
from kb_ray.tasks.hub import load_split
from kb_ray.tasks.rows import Row, code_column, row_task, whole_number
from kb_ray.tasks.table import file_rows

DATASET = "ScalingIntelligence/KernelBench"
LEVELS = (1, 2, 3, 4)
_CHECKOUT = "give a checkout of KernelBench with --kernelbench-root or KERNELBENCH_ROOT"
_INSTEAD = "where the hub is out of reach, clone KernelBench and give --kernelbench-root FOLDER, or an exported FILE"
_NAME = "KernelBench"


def kernelbench_entries(root: str | None, levels: Collection[int] | None) -> list[Entry]:
    """The problems of these levels, or all, by level and number. Raises ConfigError where there are none.

    `root`: a checkout, or a .parquet or .jsonl file with the hub's columns; without it a checkout nearby is
    taken, else the hub is asked.
    """
    if unknown := set(levels or ()) - set(LEVELS):
        raise ConfigError(f"kernelbench: no level {min(unknown)}; there are levels 1 to {LEVELS[-1]}")
    root = root or checkout_nearby()
    if root is not None:
        is_file = given_path(root, f"--kernelbench-root {root}").is_file()
        return _export_entries(root, levels) if is_file else _checkout_entries(root, levels)
    return [entry for level in sorted(levels or LEVELS) for entry in _hub_entries(level)]


def checkout_nearby() -> str | None:
    """A checkout called KernelBench in the current folder, beside it, or beside the folder that kb_ray is in."""
    here, package = Path.cwd(), Path(__file__).parents[3]
    for folder in (here, here.parent, package):
        if (folder / _NAME / _NAME / "level1").is_dir():
            return str(folder / _NAME)
    return None


def _checkout_entries(root: str, levels: Collection[int] | None) -> list[Entry]:
    base = Path(os.path.expanduser(root))
    if not base.is_dir():
        raise ConfigError(f"kernelbench: there is no folder {base}; {_CHECKOUT}")
    base = base / _NAME if (base / _NAME).is_dir() else base
    found = level_folders(base)
    paths = {level: sorted(found[level].glob("*.py"), key=_by_number) for level in LEVELS if level in found}
    wanted = sorted(levels or paths or LEVELS)
    for level in wanted:
        if not paths.get(level):
            raise ConfigError(f"kernelbench: {base} holds no level{level}/*.py; {_CHECKOUT}")
    return [
        file_entry(path, f"kernelbench/{level}/{path.stem}", "kernelbench", level)
        for level in wanted
        for path in paths[level]
    ]


def _export_entries(path: str, levels: Collection[int] | None) -> list[Entry]:
    found, rows = file_rows(path)
    for column in ("code", "level", "name"):
        code_column(found, path, (column,))
    entries = []
    for where, read in rows:
        level, name = _place(read)
        if levels is None or level in levels or level is None:
            key = f"kernelbench/{level}/{name or where.replace(' ', '_')}"
            entries.append(Entry(key, f"{path} {where}", partial(_export_task, read, key)))
    if not entries:
        raise ConfigError(f"kernelbench: {path} holds no problem of level {', '.join(map(str, sorted(levels or ())))}")
    return entries


def _place(read: Callable[[], Row]) -> tuple[int | None, str | None]:
    """(level, name) of a row; None where it has none, which is told when the row is made a task."""
    try:
        row = read()
    except TaskError:
        return None, "unreadable"
    try:
        level = whole_number(row, "level")
    except TaskError:
        level = None
    return level, _bare(row.get("name"))


def _export_task(read: Callable[[], Row], task_id: str) -> Task:
    row = {**read(), "entry_point": None, "input_shapes": None}
    if whole_number(row, "level") is None:
        raise TaskError("level is missing")
    _check_name(row)
    return row_task(row, code_column="code", source="kernelbench", default_name="unnamed", task_id=task_id)


def _bare(name: object) -> str | None:
    return None if name is None or name == "" else str(name).removesuffix(".py")


def _check_name(row: Row) -> None:
    """TaskError where a row has no name: by it a problem is the same one in a checkout."""
    if _bare(row.get("name")) is None:
        raise TaskError("name is missing")


def _by_number(path: Path) -> tuple[int, str]:
    number = path.stem.partition("_")[0]
    return (int(number) if number.isdecimal() and number.isascii() else 0, path.stem)


def _hub_entries(level: int) -> list[Entry]:
    rows, columns = load_split(DATASET, f"level_{level}", _INSTEAD)
    column = code_column(columns, DATASET, ("code",))
    code_column(columns, DATASET, ("name",))
    names = [_bare(row["name"]) for row in rows]
    return [
        Entry(
            task_id,
            f"{DATASET} level_{level} row {index}",
            partial(_hub_task, rows, index, column, task_id, level),
        )
        for index, name in enumerate(names)
        for task_id in [f"kernelbench/{level}/{name or f'row_{index}'}"]
    ]


def _hub_task(rows: Sequence[Row], index: int, column: str, task_id: str, level: int) -> Task:
    row = {**rows[index], "level": level, "entry_point": None, "input_shapes": None}
    _check_name(row)
    return row_task(row, code_column=column, source="kernelbench", default_name=f"row_{index}", task_id=task_id)
