"""How a run stands, from what its store holds and the time of day (pure).

Alive or not is judged by the last word of each start; nobody is asked. Success is told over judged episodes, those
that did not end by a failure of ours or of the model server. Does not read a store and does not print.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from kb_ray.records import REDONE_ON_RESUME, Record
from kb_ray.score.estimates import rate
from kb_ray.score.summary import Estimate
from kb_ray.traces.run import RunInfo
from kb_ray.traces.skim import Skim, Skimmed
from kb_ray.traces.starts import Start
from kb_ray.watching.shards import ShardStanding, newest_division, planned_by_all, standings

State = Literal["running", "silent", "stopped", "finished", "unknown"]
_MISSED = 3
"""Words that a living start may miss in a row."""
_SLACK_S = 15.0
"""Two machines' clocks may differ by so much, beside that."""
_RATE_PARTS = 10
_PART_TIME = re.compile(r"part-(\d{8}T\d{12})Z-")


class Standing(Record):
    """A run seen from outside. Times are UTC, ISO 8601; durations are seconds."""

    store: str
    run_id: str | None
    """None where the store lacks run.json."""
    fingerprint: str | None
    begun_at: str | None
    model: str | None
    state: State
    why: str
    """What the state was concluded from, in one line."""
    starts: int
    planned: int | None
    """As the newest start planned it; None where none said so."""
    episodes: int
    """In the store, each (task, sample) once."""
    to_redo: int
    """Of those, ended by a failure of ours or of the model server."""
    superseded: int
    """Rows of earlier attempts."""
    files: int
    episodes_per_min: float | None
    """Over the last parts of the newest start; None where that is too few."""
    left_s: float | None
    """Until all is done at that rate; None where it is not running or nothing can be said."""
    last_part_at: str | None
    since_last_part_s: float | None
    stop_reasons: dict[str, int]
    statuses: dict[str, int]
    """Verdicts of all turns."""
    success: Estimate
    """Episodes with a correct kernel, of judged ones."""
    faster: Estimate | None
    """Episodes whose best kernel is trusted and faster than the reference, of judged ones; None where nothing is
    timed."""
    success_by_source: dict[str, Estimate]
    """By source and level."""
    generating: int | None
    """Requests with the model, as the newest start last said; None where none is running."""
    waiting_on_model: int | None
    waiting_on_bench: int | None
    damaged: tuple[str, ...]
    """One line for each file that cannot be read."""
    resume: str | None
    """The command that goes on; None where there is nothing to go on with, it is running, or it has shards."""
    shards: tuple[ShardStanding, ...] = ()
    """Where it is divided: each shard, with the command that goes on with it."""


def standing(
    uri: str, run: RunInfo | None, starts: Sequence[Start], skim: Skim, now: datetime, command: str | None
) -> Standing:
    """How the run stands at `now` (UTC). `starts`: oldest first. `command`: what would go on with it."""
    rows = skim.latest()
    to_redo = sum(row.stop_reason in REDONE_ON_RESUME for row in rows)
    division = newest_division(starts)
    # Only one start at a time may write, or one of each shard: what came before it is over, whatever it last said.
    current = [start for start in division.values() if start] if division else starts[-1:]
    living = [start for start in current if _lives(start, now)]
    planned = max((start.planned for start in current), default=None)
    planned = planned_by_all(division) if division else planned
    complete = planned is not None and len(rows) >= planned and not to_redo and not skim.damaged
    state, why = _state(current, complete, now)
    times = _part_times(skim)
    per_min = _rate(times, starts)
    left = max(0, planned - len(rows)) if planned is not None else None
    judged = [row for row in rows if row.stop_reason not in REDONE_ON_RESUME]
    timed = any(row.speedup is not None for row in judged)
    return Standing(
        store=uri,
        run_id=run.run_id if run else None,
        fingerprint=run.fingerprint if run else None,
        begun_at=run.created_at if run else None,
        model=str(run.identity.get("model") or run.identity.get("model_name") or "unknown") if run else None,
        state=state,
        why=why,
        starts=len(starts),
        planned=planned,
        episodes=len(rows),
        to_redo=to_redo,
        superseded=sum(map(len, skim.files.values())) - len(rows),
        files=len(skim.files) + len(skim.damaged),
        episodes_per_min=per_min,
        left_s=60 * left / per_min if state == "running" and left is not None and per_min else None,
        last_part_at=times[-1][0].isoformat(timespec="seconds") if times else None,
        since_last_part_s=max(0.0, (now - times[-1][0]).total_seconds()) if times else None,
        stop_reasons=_counted(str(row.stop_reason) for row in rows),
        statuses=_counted(status for row in rows for status in row.statuses),
        success=rate([row.correct for row in judged]),
        faster=rate([row.trusted and (row.speedup or 0.0) > 1.0 for row in judged]) if timed else None,
        success_by_source=_by_source(judged),
        generating=sum(start.generating for start in living) if living else None,
        waiting_on_model=sum(start.waiting_on_model for start in living) if living else None,
        waiting_on_bench=sum(start.waiting_on_bench for start in living) if living else None,
        damaged=tuple(f"{file.key}: {file.reason}" for file in skim.damaged),
        resume=None if division or state in ("running", "finished") else command,
        shards=standings(division, rows, lambda start: _lives(start, now), command),
    )


def _state(starts: Sequence[Start], complete: bool, now: datetime) -> tuple[State, str]:
    living = next((start for start in starts if _lives(start, now)), None)
    if living is not None:
        return "running", f"seen {ago(_age_s(living, now))} ago on {living.host}, process {living.pid}"
    if complete:
        return "finished", "all planned episodes are in the store"
    if not starts:
        return "unknown", "no start has said anything of itself"
    last = starts[-1]
    if last.ending is None:
        return "silent", (
            f"last seen {ago(_age_s(last, now))} ago on {last.host}, process {last.pid}, and no end was told: "
            "killed, or its machine or the way to this store is gone"
        )
    if last.ending == "gone":
        return "silent", (
            f"process {last.pid} of this machine is gone and told no end: killed; last seen "
            f"{ago(_age_s(last, now))} ago"
        )
    how = {"done": "it came to its end"}.get(last.ending, last.message or last.ending)
    return "stopped", f"{how}, {ago(_age_s(last, now))} ago on {last.host}"


def _lives(start: Start, now: datetime) -> bool:
    return start.ending is None and _age_s(start, now) <= _MISSED * start.every_s + _SLACK_S


def _age_s(start: Start, now: datetime) -> float:
    return max(0.0, (now - datetime.fromisoformat(start.seen_at)).total_seconds())


def _part_times(skim: Skim) -> list[tuple[datetime, int]]:
    """(when it was written, rows) of each part, oldest first."""
    found = []
    for key, rows in skim.files.items():
        if match := _PART_TIME.search(key):
            found.append((datetime.strptime(match[1], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC), len(rows)))
    return sorted(found)


def _rate(times: Sequence[tuple[datetime, int]], starts: Sequence[Start]) -> float | None:
    """Episodes a minute over the last parts: from the part before them, or from the newest start, to the last."""
    # A start's own time has whole seconds.
    begun = datetime.fromisoformat(starts[-1].began_at) - timedelta(seconds=1) if starts else None
    since = [(when, rows) for when, rows in times if begun is None or when >= begun]
    if begun is not None:
        since = [(begun, 0), *since]
    last = since[-_RATE_PARTS - 1 :]
    if len(last) < 2 or last[-1][0] <= last[0][0]:
        return None
    return 60 * sum(rows for _, rows in last[1:]) / (last[-1][0] - last[0][0]).total_seconds()


def _by_source(rows: Sequence[Skimmed]) -> dict[str, Estimate]:
    groups: dict[str, list[bool]] = {}
    for row in rows:
        name = row.source if row.level is None else f"{row.source} level {row.level}"
        groups.setdefault(name, []).append(row.correct)
    return {name: rate(groups[name]) for name in sorted(groups)}


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def ago(seconds: float) -> str:
    """A duration in words, coarser the longer it is."""
    whole = round(seconds)
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if whole >= 2 * size:
            return f"{whole // size} {name}s"
    return f"{whole} s"
