"""Seeded draws: which tasks make up the first N samples. Pure; knows tasks by their keys only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from kb_ray.records import Task
from kb_ray.tasks.entry import Entry


def ranked(entries: Iterable[Entry], seed: int) -> list[Entry]:
    """The entries in the order in which a draw takes them.

    The order of two entries depends on the seed and their keys alone: neither on their order in the source
    nor on what else it holds.
    """
    return sorted(entries, key=lambda entry: hashlib.sha256(f"{seed}\0{entry.key}".encode()).digest())


def draw(
    entries: Iterable[Entry], count: int, seed: int, read: Callable[[Entry], Task | None]
) -> list[tuple[Task, int]]:
    """The first `count` (task, sample index) pairs of an endless draw.

    Every usable task is taken once before any is taken again, so that sample indices spread evenly, and a
    larger count only adds to the end. `read` gives None for an entry that cannot be used; a task that comes
    again under its id is one task. Entries behind the last one needed are not read.
    """
    tasks = list(islice(_unlike(read, ranked(entries, seed)), count))
    return [(tasks[i % len(tasks)], i // len(tasks)) for i in range(count)] if tasks else []


def _unlike(read: Callable[[Entry], Task | None], entries: Iterable[Entry]) -> Iterator[Task]:
    seen = set[str]()
    for task in map(read, entries):
        if task is not None and task.task_id not in seen:
            seen.add(task.task_id)
            yield task
