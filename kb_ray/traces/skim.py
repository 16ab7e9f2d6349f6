"""The few facts of each episode that can be read without its texts, remembered from look to look.

A part never changes, so that looking again at a growing store reads what is new. Damage is told and left out, and
looked at again each time: somebody may put a copy back. Says nothing of what the facts amount to.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.records import StopReason
from kb_ray.traces.layout import sources
from kb_ray.traces.reading import Damaged
from kb_ray.traces.schema import must_be_known
from kb_ray.traces.store import Store

_READERS = 8
_KEYS = ("task_id", "sample", "attempt", "stop_reason", "correct")
_COLUMNS = (
    *_KEYS, "source", "level", "final_result.trusted", "final_result.speedup", "turns.list.element.verdict.status",
)  # fmt: skip


@dataclass(frozen=True)
class Skimmed:
    """One row of a trace file."""

    task_id: str
    sample: int
    attempt: int
    source: str
    level: int | None
    stop_reason: StopReason
    correct: bool
    """Whether any turn was."""
    trusted: bool
    """Of the best turn, as the speedup."""
    speedup: float | None
    statuses: tuple[str, ...]
    """Of all turns, in order."""


@dataclass(frozen=True)
class Skim:
    """A store at one moment."""

    files: dict[str, tuple[Skimmed, ...]]
    """Rows by file, superseded attempts included, oldest file first."""
    damaged: tuple[Damaged, ...]

    def latest(self) -> list[Skimmed]:
        """Each (task, sample) once, in its highest attempt; of two rows of one attempt the first."""
        found: dict[tuple[str, int], Skimmed] = {}
        for row in (row for rows in self.files.values() for row in rows):
            known = found.get((row.task_id, row.sample))
            if known is None or row.attempt > known.attempt:
                found[row.task_id, row.sample] = row
        return list(found.values())


class Skimmer:
    """Looks at one store, as often as wanted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[Skimmed, ...]] = {}

    def look(self) -> Skim:
        """What the store holds now.

        ConfigError, in one line, where a newer kb_ray wrote a file. StoreError where the store fails or a
        compaction's manifest cannot be understood.
        """
        keys = sources(self._store)
        damaged = self._read([key for key in keys if key not in self._known])
        return Skim({key: self._known[key] for key in keys if key in self._known}, tuple(damaged))

    def _read(self, keys: Sequence[str]) -> list[Damaged]:
        """Remembers the rows of these files; those files of which there are none to remember."""
        damaged = []
        with ThreadPoolExecutor(_READERS, thread_name_prefix="trace-skim") as readers:
            for key, found in zip(keys, readers.map(self._look_at, keys), strict=True):
                if isinstance(found, Damaged):
                    damaged.append(found)
                else:
                    self._known[key] = found
        return damaged

    def _look_at(self, key: str) -> tuple[Skimmed, ...] | Damaged:
        with self._store.open(key) as source:
            try:
                file = pq.ParquetFile(source, pre_buffer=True)
                must_be_known(file.schema_arrow, f"trace store {self._store.uri}: {key}")
                if not set(_KEYS) <= set(file.schema_arrow.names):
                    return Damaged(key, f"not a trace file, it lacks one of the columns {', '.join(_KEYS)}")
                rows = file.read(columns=list(_COLUMNS), use_threads=False).to_pylist()
                return tuple(map(_skimmed, rows))
            except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
                return Damaged(key, " ".join(str(error).split())[:200])


def _skimmed(row: dict[str, Any]) -> Skimmed:
    best = row.get("final_result") or {}
    return Skimmed(
        task_id=row["task_id"],
        sample=row["sample"],
        attempt=row["attempt"],
        source=row.get("source") or "",
        level=row.get("level"),
        stop_reason=StopReason(row["stop_reason"]),
        correct=bool(row["correct"]),
        trusted=bool(best.get("trusted")),
        speedup=best.get("speedup"),
        statuses=tuple(turn["verdict"]["status"] for turn in row.get("turns") or ()),
    )
