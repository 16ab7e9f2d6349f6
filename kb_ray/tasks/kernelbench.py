"""KernelBench: from a local checkout (KernelBench/level1/19_ReLU.py) or from the hub.

Knows the layout of both; both give the same ids, `kernelbench/1/19_ReLU`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from kb_ray.errors import ConfigError
from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.folder import file_entry, level_folders
from kb_ray.tasks.hub import load_split
from kb_ray.tasks.rows import Row, code_column, row_task

DATASET = "ScalingIntelligence/KernelBench"
LEVELS = (1, 2, 3, 4)
_INSTEAD = "where the hub is out of reach, clone KernelBench and give --kernelbench-root FOLDER"


def kernelbench_entries(root: str | None, levels: Collection[int] | None) -> list[Entry]:
    """The problems of these levels, or all, by level and number. Raises ConfigError where there are none."""
    if unknown := set(levels or ()) - set(LEVELS):
        raise ConfigError(f"kernelbench: no level {min(unknown)}; there are levels 1 to {LEVELS[-1]}")
    if root is not None:
        return _checkout_entries(root, levels)
    return [entry for level in sorted(levels or LEVELS) for entry in _hub_entries(level)]


def _checkout_entries(root: str, levels: Collection[int] | None) -> list[Entry]:
    base = Path(root).expanduser()
    base = base / "KernelBench" if (base / "KernelBench").is_dir() else base
    found = level_folders(base) if base.is_dir() else {}
    paths = {level: sorted(found[level].glob("*.py"), key=_by_number) for level in LEVELS if level in found}
    wanted = sorted(levels or paths or LEVELS)
    for level in wanted:
        if not paths.get(level):
            raise ConfigError(
                f"kernelbench: {base} holds no level{level}/*.py; give a checkout of KernelBench with "
                "--kernelbench-root"
            )
    return [
        file_entry(path, f"kernelbench/{level}/{path.stem}", "kernelbench", level)
        for level in wanted
        for path in paths[level]
    ]


def _by_number(path: Path) -> tuple[int, str]:
    number = path.stem.partition("_")[0]
    return (int(number) if number.isdigit() else 0, path.stem)


def _hub_entries(level: int) -> list[Entry]:
    rows, columns = load_split(DATASET, f"level_{level}", _INSTEAD)
    column = code_column(columns, DATASET, ("code",))
    code_column(columns, DATASET, ("name",))
    names = [str(name).removesuffix(".py") for name in _column(rows, "name")]
    return [
        Entry(
            task_id,
            f"{DATASET} level_{level} row {index}",
            partial(_hub_task, rows, index, column, task_id, level),
        )
        for index, name in enumerate(names)
        for task_id in [f"kernelbench/{level}/{name}"]
    ]


def _hub_task(rows: Sequence[Row], index: int, column: str, task_id: str, level: int) -> Task:
    row = {**rows[index], "level": level, "entry_point": None, "input_shapes": None}
    return row_task(row, code_column=column, source="kernelbench", default_name=f"row_{index}", task_id=task_id)


def _column(rows: Sequence[Row], name: str) -> list[object]:
    return [row[name] for row in rows]
