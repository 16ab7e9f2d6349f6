"""How much of what was planned a store holds: an unfinished run is made of what ended first, and looks better for it.

Reads the plans of a run and the keys of its episodes. Does not know what they came to.
"""

from __future__ import annotations

from collections.abc import Collection

from kb_ray.errors import StoreError
from kb_ray.evaluation.attempts import Key, keys_of
from kb_ray.records import Record
from kb_ray.traces.plans import read_plans
from kb_ray.traces.reading import survey
from kb_ray.traces.resume import finished
from kb_ray.traces.starts import read_starts
from kb_ray.traces.store import Store


class Coverage(Record):
    """Episodes that were planned, and those of them that the store holds, however they ended."""

    planned: int
    finished: int
    damaged_plans: tuple[str, ...] = ()
    """Keys of plans that cannot be read: more may have been planned than is said here."""

    @property
    def note(self) -> str | None:
        """What a reader of rates has to know; None where all is there."""
        if self.damaged_plans:
            told = f"{self.finished} of {self.planned} episodes that other plans name are there"
            return f"Perhaps unfinished: {', '.join(self.damaged_plans)} cannot be read; {told}."
        if self.finished >= self.planned:
            return None
        return f"Unfinished: {self.finished} of {self.planned} planned episodes; the quick ones are what is there."


def coverage(store: Store, there: Collection[Key], chosen: Collection[Key] | None = None) -> Coverage | None:
    """Of the episodes `chosen`, or of all that any start of the run planned, those that are `there`.

    Without tasks that a start left out as flagged. None where there is no plan. StoreError where the store fails.
    """
    plans, damaged = ({"": frozenset(chosen)}, []) if chosen is not None else read_plans(store)
    planned = frozenset().union(*plans.values())
    left_out = {task_id for start in read_starts(store) for task_id in start.left_out}
    there = frozenset(there)
    wanted = {key for key in planned if key in there or key[0] not in left_out}
    if not wanted and not damaged:
        return None
    return Coverage(planned=len(wanted), finished=len(wanted & there), damaged_plans=tuple(damaged))


def coverage_of(store: Store) -> Coverage | None:
    """The same of a whole store, damaged files left out."""
    try:
        there: Collection[Key] = finished(store).keys()
    except StoreError:
        there = keys_of(survey(store, skip_corrupt=True))
    return coverage(store, there)
