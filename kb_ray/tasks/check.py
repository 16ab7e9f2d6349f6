"""Checks tasks one by one: does each load, does its reference run, and what is held against it?

Turns entries into reports, and reports into a table, counts and JSON. Runs nothing itself: how a reference
is run is handed in. Does not know data sets or verifiers.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kb_ray.errors import InfraError, TaskError
from kb_ray.records import Status, Task, Verdict
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.quality import SIZE_UNKNOWN, TOO_LARGE, TaskReport

_MISSING = re.compile(r"No module named '([\w.]+)'")
_FROM_HUB = re.compile(r"when downloading ([\w./-]+?)\.? |huggingface\.co")
_HEADINGS = ("loads", "runs", "style", "level", "inputs", "determ.", "seconds", "flags, or what is wrong")
_WIDTHS = (5, 4, 8, 5, 10, 7, 7)


def reports(entries: Iterable[Entry], inspect: Callable[[Task], Verdict]) -> Iterator[TaskReport]:
    """A report for each entry, in order, as soon as it is there.

    `inspect`: runs the reference; its verdict is `ok` or `infra_error`, its `evidence.flags` are the task's.
    """
    known: dict[str, str] = {}
    for entry in entries:
        try:
            task = entry.make()
            first = known.setdefault(task.task_id, entry.where)
            if first != entry.where:
                raise TaskError(f"has the same id as {first}, and a run would skip it")
        except TaskError as error:
            yield TaskReport(task_id=entry.key, loads=False, error=f"{entry.where}: {error}")
            continue
        yield report(task, inspect)


def report(task: Task, inspect: Callable[[Task], Verdict]) -> TaskReport:
    """The report of a task that was read."""
    began = time.monotonic()
    known: dict[str, Any] = {"task_id": task.task_id, "loads": True, "style": task.style, "level": task.level}
    try:
        verdict = inspect(task)
    except InfraError as error:
        return TaskReport(**known, runs=False, error=f"our own failure: {error}")
    flags = verdict.evidence.flags
    failed = verdict.status is not Status.OK
    return TaskReport(
        **known,
        runs=None if {TOO_LARGE, SIZE_UNKNOWN} & {*flags} else not failed,
        input_bytes=verdict.evidence.input_bytes,
        seconds=round(time.monotonic() - began, 3),
        flags=tuple(sorted(flags)),
        error=explained(verdict.error.message) if failed and verdict.error else None,
    )


def explained(message: str) -> str:
    """What went wrong with a reference in one line, with what to do where a package is missing."""
    line = " ".join(message.split())
    missing, hub = _MISSING.search(line), _FROM_HUB.search(line)
    if hub is not None:
        return (
            f"needs {hub[1] or 'a model'} from the Hugging Face hub: references run without network and cannot load it"
        )
    if missing is None:
        return line
    package = missing[1].partition(".")[0]
    return f"needs {package}, which is not installed where references run: pip install {package}"


def heading(width: int) -> str:
    """The table's first line; `width`: of the column of task ids."""
    return _line("task", _HEADINGS, width)


def row(checked: TaskReport, width: int) -> str:
    """One task as a line of the table."""
    cells = (
        _yes(checked.loads),
        _yes(checked.runs),
        checked.style or "-",
        "-" if checked.level is None else str(checked.level),
        _size(checked.input_bytes),
        _yes(checked.deterministic),
        "-" if checked.seconds is None else f"{checked.seconds:.2f}",
        checked.error or ", ".join(checked.flags),
    )
    return _line(checked.task_id, cells, width)


def summary(checked: Sequence[TaskReport]) -> dict[str, Any]:
    """Counts over all reports, by name; `flags` counts each flag."""
    return {
        "tasks": len(checked),
        "load": sum(item.loads for item in checked),
        "run": sum(item.runs is True for item in checked),
        "fail": sum(item.runs is False for item in checked),
        "not_run": sum(item.loads and item.runs is None for item in checked),
        "size_unknown": sum(SIZE_UNKNOWN in item.flags for item in checked),
        "excluded": sum(item.excluded for item in checked),
        "flags": dict(sorted(Counter(flag for item in checked for flag in item.flags).items())),
    }


def summary_text(checked: Sequence[TaskReport]) -> str:
    """The same for a reader, two lines at most."""
    counts = summary(checked)
    unknown = counts["size_unknown"]
    text = (
        f"{counts['load']} of {counts['tasks']} load; {counts['run']} run, {counts['fail']} fail, "
        f"{counts['not_run'] - unknown} not run for their size, "
        + (f"{unknown} not run because it is unknown, " if unknown else "")
    ).removesuffix(", ") + f"; {counts['excluded']} would be excluded"
    flags = ", ".join(f"{flag} {count}" for flag, count in counts["flags"].items())
    return f"{text}\nflags: {flags}" if flags else text


def as_json(checked: Sequence[TaskReport], specs: Sequence[str], device: str) -> str:
    """All reports and counts as a JSON document."""
    tasks = [
        {**item.model_dump(mode="json"), "deterministic": item.deterministic, "excluded": item.excluded}
        for item in checked
    ]
    return json.dumps({"specs": list(specs), "device": device, "summary": summary(checked), "tasks": tasks}, indent=1)


def _line(task_id: str, cells: Sequence[str], width: int) -> str:
    fixed = (f"{cell:<{room}}" for cell, room in zip(cells, _WIDTHS, strict=False))
    return "  ".join([f"{task_id:<{width}}", *fixed, cells[-1]]).rstrip()


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
