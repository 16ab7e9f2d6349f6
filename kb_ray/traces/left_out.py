"""Which planned episodes nobody waits for: those of flagged tasks, by the last word on each (pure).

A start with `--exclude-flagged` leaves tasks out; a later one without it is asked for them again. Does not know why a
task is flagged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kb_ray.traces.plans import Pairs
from kb_ray.traces.shards import Shard
from kb_ray.traces.starts import Start


def left_out(starts: Iterable[Start], plans: Mapping[str, Pairs]) -> Pairs:
    """(task id, sample) of the episodes that the last start which was asked for them left out. `starts`: oldest first;
    `plans`: by key. A start says what it left out when it ends: one that was killed left nothing out."""
    found: set[tuple[str, int]] = set()
    planned = frozenset[tuple[str, int]]().union(*plans.values())
    for start in starts:
        shard, own = Shard.of(start.shard), plans.get(start.plan or "")
        if own is not None:
            found -= {pair for pair in found & own if shard.holds(*pair)}
        if start.left_out:
            tasks = frozenset(start.left_out)
            asked = planned if own is None else own
            found |= {pair for pair in asked if pair[0] in tasks and shard.holds(*pair)}
    return frozenset(found)
