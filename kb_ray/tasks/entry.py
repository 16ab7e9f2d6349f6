"""One task that a source offers, not yet read: what every source returns and `plan` realises.

A data set has thousands of rows and a run may draw a few, so reading a program waits until it is wanted.
Knows no source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kb_ray.records import Task


@dataclass(frozen=True)
class Entry:
    """A task that could be used."""

    key: str
    """Stable name within all sources; decides the place in a seeded draw. Mostly the task id."""
    where: str
    """Where it stands, for messages: a path, or a file and row."""
    make: Callable[[], Task]
    """Reads the task. Raises TaskError where it is malformed."""
