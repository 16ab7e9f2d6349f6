"""How much of what was planned a store holds: an unfinished run is made of what ended first, and looks better for it.

Reads the plans of a run, what its starts said at their ends, and the keys of its episodes: what was done once and is
not there now was lost with its file, and is no work left to do. Does not know what episodes came to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kb_ray.evaluation.attempts import Key, keys_of
from kb_ray.records import Record
from kb_ray.traces.left_out import left_out
from kb_ray.traces.plans import Pairs, read_plans
from kb_ray.traces.reading import Survey
from kb_ray.traces.resume import finished
from kb_ray.traces.shards import Shard
from kb_ray.traces.starts import Start, read_starts
from kb_ray.traces.store import Store


class Coverage(Record):
    """Episodes that were planned, and those of them that the store holds, however they ended."""

    planned: int
    finished: int
    damaged_plans: tuple[str, ...] = ()
    """Keys of plans that cannot be read: more may have been planned than is said here."""
    lost: int = 0
    """Planned episodes that are not there though a start ended with all of its plan done."""
    damaged_files: int = 0
    """Files that were left out whole or in part: episodes may be in them that no start called done."""

    @property
    def note(self) -> str | None:
        """What a reader of rates has to know; None where all is there."""
        if self.damaged_plans:
            told = f"{self.finished} of {self.planned} episodes that other plans name are there"
            open_ = [f"Perhaps unfinished: {', '.join(self.damaged_plans)} cannot be read; {told}."]
        elif self.finished + self.lost < self.planned:
            done = f"{self.finished + self.lost} of {self.planned} planned episodes"
            were = " were done" if self.lost else ""
            open_ = [f"Unfinished: {done}{were}; the quick ones are what is there."]
        else:
            open_ = []
        return " ".join([*open_, *self._losses(bool(open_))]) or None

    def _losses(self, unfinished: bool) -> Iterable[str]:
        if self.lost:
            yield f"Lost: {self.lost} of {self.planned} planned episodes were done, in files that are damaged or gone."
        if unfinished and self.damaged_files:
            yield f"Some of what is not there may be in damaged files, which are left out: {self.damaged_files}."


def coverage(
    store: Store, there: Collection[Key], chosen: Collection[Key] | None = None, damaged_files: int = 0
) -> Coverage | None:
    """Of the episodes `chosen`, or of all that any start of the run planned, those that are `there`.

    Without those of tasks that were left out as flagged. None where there is no plan. StoreError where the store fails.
    """
    plans, damaged = read_plans(store)
    starts = read_starts(store)
    if chosen is not None:
        planned, damaged = frozenset(chosen), []
    else:
        planned = frozenset[Key]().union(*plans.values())
    there = frozenset(there)
    wanted = (planned - left_out(starts, plans)) | (planned & there)
    if not wanted and not damaged:
        return None
    return Coverage(
        planned=len(wanted),
        finished=len(wanted & there),
        damaged_plans=tuple(damaged),
        lost=len((wanted & _done(plans, starts)) - there),
        damaged_files=damaged_files,
    )


def coverage_of(found: Survey) -> Coverage | None:
    """The same of a whole store as it was looked at, damaged files left out."""
    # The short way opens few files, and would count what can be read of damaged ones.
    there = keys_of(found) if found.damaged else finished(found.store).keys()
    return coverage(found.store, there, damaged_files=len(found.damaged))


def _done(plans: Mapping[str, Pairs], starts: Iterable[Start]) -> frozenset[Key]:
    """What starts said to be done when they ended."""
    done: set[Key] = set()
    for start in starts:
        if start.ending == "done":
            shard, plan = Shard.of(start.shard), plans.get(start.plan or "", frozenset())
            done |= plan if shard.whole else {key for key in plan if shard.holds(*key)}
    return frozenset(done)
