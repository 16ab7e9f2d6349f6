"""How each shard of a run stands, from what its starts last said and from the episodes that are its own (pure).

Decides nothing about the run as a whole, and knows no store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kb_ray.records import REDONE_ON_RESUME, Record
from kb_ray.traces.shards import Shard
from kb_ray.traces.skim import Skimmed
from kb_ray.traces.starts import Start


class ShardStanding(Record):
    """One shard of a run."""

    shard: str
    state: str
    """`running`, `finished`, `stopped` (it said how it ended), `silent` (it did not) or `not started`."""
    episodes: int
    """Of its own, in the store."""
    planned: int | None
    """As its newest start planned it; None before the first."""
    host: str | None
    resume: str | None
    """The command that goes on with it; None where there is nothing to go on with, or it is running."""


def newest_division(starts: Sequence[Start]) -> dict[str, Start | None]:
    """The last start of each shard of the newest start's division, None where there was none; empty without shards."""
    newest = Shard.of(starts[-1].shard) if starts else Shard()
    if newest.whole:
        return {}
    found: dict[str, Start | None] = {f"{index}/{newest.count}": None for index in range(1, newest.count + 1)}
    for start in starts:
        if start.shard in found:
            found[start.shard] = start
    return found


def planned_by_all(division: dict[str, Start | None]) -> int | None:
    """Episodes of the whole run, as its shards planned it."""
    said = [start for start in division.values() if start is not None]
    if len(said) == len(division):
        # Tasks that a shard leaves out are in its own number alone.
        return sum(start.planned for start in said)
    return max((start.run_planned for start in said if start.run_planned is not None), default=None)


def standings(
    division: dict[str, Start | None], rows: Sequence[Skimmed], lives: Callable[[Start], bool], command: str | None
) -> tuple[ShardStanding, ...]:
    """Each shard, in order. `rows`: each (task, sample) once. `command`: what goes on with the run, shards aside."""
    return tuple(_standing(Shard.of(name), start, rows, lives, command) for name, start in division.items())


def _standing(
    shard: Shard, start: Start | None, rows: Sequence[Skimmed], lives: Callable[[Start], bool], command: str | None
) -> ShardStanding:
    own = [row for row in rows if shard.holds(row.task_id, row.sample)]
    to_redo = any(row.stop_reason in REDONE_ON_RESUME for row in own)
    if start is None:
        state = "not started"
    elif start.ending is None and lives(start):
        state = "running"
    elif len(own) >= start.planned and not to_redo:
        state = "finished"
    else:
        # "gone" is concluded from outside: nothing was said.
        state = "silent" if start.ending in (None, "gone") else "stopped"
    on = None if command is None or state in ("running", "finished") else f"{command} --shard {shard}"
    return ShardStanding(
        shard=str(shard),
        state=state,
        episodes=len(own),
        planned=start.planned if start else None,
        host=start.host if start else None,
        resume=on,
    )
