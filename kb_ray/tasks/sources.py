"""What was asked for -> the (task, sample index) pairs of a run, in a stable order.

Knows the names of the sources and how they add up; each source's own file knows the rest. Decides in one
place what becomes of malformed and of repeated tasks. Reads files and data sets; asks no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Task
from kb_ray.tasks.draw import draw
from kb_ray.tasks.entry import Entry
from kb_ray.tasks.folder import builtin_entries, folder_entries
from kb_ray.tasks.kernelbench import checkout_nearby, kernelbench_entries
from kb_ray.tasks.kernelbook import kernelbook_table
from kb_ray.tasks.table import file_table

_SPECS = "builtin[:LEVELS], folder:PATH, file:PATH, kernelbench[:LEVELS] or kernelbook[:PATH]"


@dataclass(frozen=True)
class Sources:
    """Which tasks a run is about, and how often each."""

    specs: tuple[str, ...] = ()
    """`builtin`, `builtin:1,2`, `folder:PATH`, `file:PATH`, `kernelbench[:LEVELS]`, `kernelbook[:PATH]`."""
    kernelbook_samples: int | None = None
    """Samples drawn from KernelBook with `seed`; None draws none."""
    kernelbench_samples: int | None = None
    """Samples drawn from KernelBench with `seed`; more than it has tasks gives further samples of them."""
    samples: int = 1
    """Samples of each task of `specs`."""
    seed: int = 0
    kernelbench_root: str | None = None
    """A local checkout of KernelBench; None takes one nearby, else reads it from the hub."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """{field: column} of `file:` sources whose columns have names of their own."""

    @property
    def asks_hub(self) -> bool:
        """Whether a data set is read from the hub, which may take minutes."""
        named = {spec.partition(":")[0] for spec in self.specs}
        kernelbench = "kernelbench" in named or bool(self.kernelbench_samples)
        return (
            "kernelbook" in self.specs
            or bool(self.kernelbook_samples)
            or (kernelbench and not (self.kernelbench_root or checkout_nearby()))
        )


def plan(sources: Sources, on_skip: Callable[[str], None]) -> list[tuple[Task, int]]:
    """All (task, sample index) pairs: the specs in their order, then KernelBook's and KernelBench's draws.

    Of a spec every task's first sample comes before any second one. A pair that comes twice is kept once.
    `on_skip` gets one line for each malformed task. Raises ConfigError where a source is unknown, cannot be
    read or has no usable task, and where nothing was asked for.
    """
    check_mapping(sources.columns, sources.specs)
    reader = _Reader(on_skip)
    pairs: list[tuple[Task, int]] = []
    for spec in sources.specs:
        found = entries(spec, sources.kernelbench_root, sources.columns)
        tasks = [task for task in map(reader.read, found) if task is not None]
        reader.require(tasks, spec, len(found))
        pairs += [(task, sample) for sample in range(sources.samples) for task in tasks]
    draws = (("kernelbook", sources.kernelbook_samples), ("kernelbench", sources.kernelbench_samples))
    for spec, count in draws:
        if count:
            found = entries(spec, sources.kernelbench_root)
            drawn = draw(found, count, sources.seed, reader.read)
            reader.require(drawn, spec, len(found))
            pairs += drawn
    if not pairs:
        raise ConfigError(f"no tasks: give --tasks {_SPECS}, or a number of samples above 0")
    unique: dict[tuple[str, int], tuple[Task, int]] = {}
    for task, sample in pairs:
        unique.setdefault((task.task_id, sample), (task, sample))
    return list(unique.values())


def entries(spec: str, kernelbench_root: str | None = None, columns: Mapping[str, str] | None = None) -> list[Entry]:
    """What a spec offers, in its own order, nothing read yet. Raises ConfigError where it cannot be used."""
    source, colon, rest = spec.partition(":")
    if not rest and (source in ("folder", "file") or (source == "kernelbook" and colon)):
        raise ConfigError(f"task source {spec!r} needs a path: {source}:PATH")
    match source:
        case "folder":
            return folder_entries(rest)
        case "file":
            return file_table(rest, columns).entries()
        case "builtin":
            return builtin_entries(_levels(spec, rest) if colon else None)
        case "kernelbench":
            return kernelbench_entries(kernelbench_root, _levels(spec, rest) if colon else None)
        case "kernelbook":
            return kernelbook_table(rest or None).entries()
    raise ConfigError(f"unknown task source {spec!r}: use {_SPECS}")


def check_mapping(columns: Mapping[str, str], specs: Sequence[str]) -> None:
    """Raises ConfigError where columns are given a meaning, {field: column}, and no source would look at it."""
    if columns and not any(spec.startswith("file:") for spec in specs):
        raise ConfigError(f"--column {next(iter(columns))}=...: it is for file: sources, and there is none")


def _levels(spec: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError(f"task source {spec!r}: levels are numbers such as 1 or 1,2")
    return tuple(sorted({int(part) for part in parts}))


@dataclass
class _Reader:
    """Reads entries; reports those that are malformed, or that repeat an id for another program."""

    on_skip: Callable[[str], None]
    by_id: dict[str, Task] = field(default_factory=dict)
    last_reason: str = ""

    def read(self, entry: Entry) -> Task | None:
        """The entry's task, or None after reporting why there is none."""
        try:
            task = entry.make()
        except TaskError as error:
            self._skip(f"{entry.where}: {error}")
            return None
        first = self.by_id.setdefault(task.task_id, task)
        if first.reference_code != task.reference_code:
            self._skip(f"{entry.where}: another program is already called {task.task_id}")
            return None
        return first

    def require(self, found: list[Task] | list[tuple[Task, int]], spec: str, offered: int) -> None:
        """Raises ConfigError where a source gave nothing at all."""
        if not found:
            raise ConfigError(f"{spec}: none of its {offered} tasks can be used; the last: {self.last_reason}")

    def _skip(self, line: str) -> None:
        self.last_reason = line
        self.on_skip(line)
