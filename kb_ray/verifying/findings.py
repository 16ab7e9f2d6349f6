"""What a check of a store finds: faults, and the few facts of each row that the checks across rows need.

Only records. Does not know how anything is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kb_ray.records import Record, StopReason, Task

Kind = Literal[
    "manifest", "plan", "file", "schema", "row", "columns", "identity", "turns", "verdict", "stop", "messages",
    "feedback", "code", "prompt", "retrieved", "task", "repeated", "attempt", "compaction", "index", "start",
    "lost",
]  # fmt: skip

Found = tuple[Kind, str]
"""What is wrong within an episode, before it is known where that lies."""
REPLACED = "\ufffd"
"""Stands for half a surrogate pair in a file: hashes over such a text cannot be made again."""
TASK_FIELDS = tuple(name for name in Task.model_fields if name != "task_id")
"""What episodes of one task say of it, each the same."""
READ_OUT = frozenset({"style", "entry_point", "init_convention", "input_shapes"})
"""Of these, how its program is used: what kb_ray reads out of it, which another version may do otherwise."""
MARK_BYTES = 8


class Fault(Record):
    """One thing that should not be."""

    kind: Kind
    part: str = ""
    """Key of the file; empty where no file is to blame."""
    episode: str = ""
    """`TASK sample N attempt M`; empty where it is about no single episode."""
    what: str
    """In one line."""

    def __str__(self) -> str:
        return ": ".join(word for word in (self.part, self.episode, f"{self.what} [{self.kind}]") if word)


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as far as other rows are concerned."""

    episode_id: str
    task_id: str
    sample: int
    attempt: int
    stop_reason: StopReason
    correct: bool
    content: bytes
    """8 bytes of a hash over the whole episode."""
    task: bytes
    """MARK_BYTES of a hash of each of TASK_FIELDS, in order; zeros for what its file does not hold."""
    ended: datetime | None
    """By its created_at; None where that is no time in UTC."""


def named(row: Row) -> str:
    """How an episode is called in a fault."""
    return f"{row.task_id} sample {row.sample} attempt {row.attempt}"


@dataclass(frozen=True)
class FileRows:
    """One file, looked through."""

    key: str
    rows: tuple[Row, ...]
    """Those that are episodes."""
    count: int
    """All rows, 0 where it cannot be read."""
    faults: tuple[Fault, ...]


class Soundness(Record):
    """A store, checked."""

    store: str
    run_id: str | None
    """None where the store lacks run.json, as one that was put together by hand."""
    sound: bool
    state: Literal["complete", "unfinished", "unknown"]
    """`unknown`: no plan was kept, so that nobody can say what is missing."""
    files: int
    rows: int
    episodes: int
    """Each (task, sample) once, in its highest attempt."""
    planned: int | None
    missing: tuple[str, ...]
    """Planned episodes that no start has finished yet. Not a fault."""
    to_redo: int
    """Episodes that ended by a failure of ours or of the model server: the next start runs them again."""
    superseded: int
    """Rows of earlier attempts, which readers pass over."""
    repeated: int
    """Rows that say again what another row says. Readers take the first."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()
    """What is no fault and yet worth knowing."""
