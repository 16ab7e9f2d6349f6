"""Episodes that ended at a time at which the run was not, or before an attempt that came earlier (pure).

Clocks jump, and those of several machines differ: what is found is worth knowing and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from kb_ray.traces.run import RunInfo
from kb_ray.traces.starts import Start
from kb_ray.verifying.findings import Row, named

_SLACK = timedelta(hours=1)
"""Between clocks, and between the last word of a start that was killed and its last episode."""


def odd_moments(
    attempts: Iterable[Sequence[Row]], run: RunInfo | None, starts: Sequence[Start], now: datetime
) -> Iterator[str]:
    """A line for each kind of odd time. `attempts`: those of each episode, in their order; `now`: in UTC."""
    began = moment_of(run.created_at) if run else None
    seen = [moment for start in starts if (moment := moment_of(start.seen_at))]
    ended = min(max(seen, default=now), now)
    outside, backwards = list[Row](), list[Row]()
    for rows in attempts:
        outside += [row for row in rows if _outside(row.ended, began, ended)]
        backwards += [later for earlier, later in pairwise(rows) if _before(later.ended, earlier.ended)]
    told = "a clock was wrong, or created_at was changed"
    if outside:
        when = f"from {began.isoformat() if began else 'its beginning'} to {ended.isoformat(timespec='seconds')}"
        yield f"{len(outside)} episodes ended when the run was not ({when}), first {named(outside[0])}: {told}"
    if backwards:
        yield f"{len(backwards)} attempts ended before earlier ones, first {named(backwards[0])}: {told}"


def _outside(moment: datetime | None, began: datetime | None, ended: datetime) -> bool:
    return _before(moment, began) or _before(ended, moment)


def _before(one: datetime | None, other: datetime | None) -> bool:
    """Whether it was by more than clocks differ; False where one is not known."""
    return one is not None and other is not None and other - one > _SLACK


def moment_of(text: str) -> datetime | None:
    """The time that an ISO 8601 text names; None where it names none in UTC."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.utcoffset() == timedelta(0) else None
    except (ValueError, OverflowError):
        return None
