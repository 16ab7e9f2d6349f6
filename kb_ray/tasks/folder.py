"""Tasks from .py files: a folder of KernelBench-style programs, and the built-in tasks of this package.

Knows how file names stand for name, number and level; what is inside a file is program.py's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from functools import partial
from importlib.resources import files
from pathlib import Path

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.levels import level_of
from kb_ray.tasks.program import read_program

_LEVEL = re.compile(r"level[_-]?(\d+)", re.IGNORECASE)


def builtin_entries(levels: Collection[int] | None) -> list[Entry]:
    """The package's own tasks, of these levels or all: `builtin/LEVEL/NAME`, ordered by level and name."""
    root = Path(str(files("kb_ray.tasks") / "builtin"))
    by_level = level_folders(root)
    if missing := set(levels or ()) - set(by_level):
        raise ConfigError(f"builtin: no level {min(missing)}; there are levels {', '.join(map(str, sorted(by_level)))}")
    return [
        file_entry(path, f"builtin/{level}/{path.stem}", "builtin", level)
        for level, folder in sorted(by_level.items())
        if levels is None or level in levels
        for path in sorted(folder.glob("*.py"))
    ]


def given_path(path: str, spec: str) -> Path:
    """The path that a user means. ConfigError, which names `spec`, where it can be none on this machine."""
    try:
        found = Path(os.path.expanduser(path))
        found.is_dir()
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"{spec[:200]}: no such path ({what})") from error
    return found


def folder_entries(path: str) -> list[Entry]:
    """Every .py file below a folder, as `folder/NAME`; NAME is the path within the folder without .py.

    Files and folders whose names begin with a dot or an underscore are left out. Raises ConfigError where
    the folder cannot be listed or holds no such file.
    """
    root = given_path(path, f"folder:{path}")
    if not root.is_dir():
        raise ConfigError(f"folder:{path}: {'not a folder' if root.exists() else 'no such folder'}")
    try:
        found = sorted(p.relative_to(root) for p in root.rglob("*.py") if p.is_file())
        next(iter(root.iterdir()), None)
    except OSError as error:
        raise ConfigError(f"folder:{path}: cannot be read: {error.strerror or error}") from error
    visible = [p for p in found if not any(part.startswith((".", "_")) for part in p.parts)]
    if not visible:
        raise ConfigError(f"folder:{path}: holds no .py file; give a folder of KernelBench-style programs")
    return [
        file_entry(root / p, f"folder/{p.with_suffix('').as_posix()}", "folder", _level_of(root / p)) for p in visible
    ]


def level_folders(root: Path) -> dict[int, Path]:
    """Sub-folders `level1`, `level2`, ... by their number. ConfigError where two have the same."""
    found: dict[int, Path] = {}
    for folder in sorted(root.iterdir()):
        match = _LEVEL.fullmatch(folder.name)
        if match is None or not folder.is_dir():
            continue
        first = found.setdefault(int(match[1]), folder)
        if first != folder:
            raise ConfigError(
                f"{root}: {first.name} and {folder.name} are both level {int(match[1])}: rename or remove one of them"
            )
    return found


def problem_number(name: str) -> int | None:
    """19 of `19_ReLU`; None where a name begins with no number."""
    match = re.match(r"(\d+)_", name)
    return int(match[1]) if match else None


def _read_task(path: Path, task_id: str, source: str, level: int | None) -> Task:
    try:
        code = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError("is not UTF-8 text") from error
    except OSError as error:
        raise TaskError(f"cannot be read: {error.strerror or error}") from error
    program = read_program(code)
    return Task(
        task_id=task_id,
        source=source,
        level=level_of(code, program.entry_point) if level is None else level,
        name=path.stem,
        problem_id=problem_number(path.stem),
        reference_code=code,
        style=program.style,
        entry_point=program.entry_point,
        init_convention=program.init_convention,
        input_shapes=program.input_shapes,
    )


def file_entry(path: Path, task_id: str, source: str, level: int | None) -> Entry:
    """The task that one file holds, under this id."""
    return Entry(task_id, str(path), partial(_read_task, path, task_id, source, level))


def _level_of(path: Path) -> int | None:
    match = _LEVEL.fullmatch(path.parent.name)
    return int(match[1]) if match else None
