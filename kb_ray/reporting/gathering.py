"""One pass over a store: what the report needs of every episode, in a few hundred bytes each.

Keeps no text. Knows where each episode's row lies, so that the few that are shown whole can be read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kb_ray.records import Episode, Turn
from kb_ray.score.outcomes import Outcome, outcome
from kb_ray.traces.reading import Survey, read_episodes

Place = tuple[str, int]
"""File and 0-based row."""


@dataclass(frozen=True)
class Gathered:
    """All episodes of a store that count, without their texts, in the order of the survey."""

    outcomes: tuple[Outcome, ...]
    places: tuple[Place, ...]
    """Where the row of each outcome lies."""
    seconds: Mapping[str, Mapping[str, float]]
    """Wall seconds by task id and by what was waited for."""
    run_ids: tuple[str, ...]
    models: tuple[str, ...]


def gather(found: Survey) -> Gathered:
    """Reads every episode once. StoreError where the store fails on the way."""
    return gathered_of(read_episodes(found), [(key, row) for key, rows in found.rows.items() for row in rows])


def gathered_of(episodes: Iterable[Episode], places: Sequence[Place]) -> Gathered:
    """The same of a stream of episodes whose rows lie at `places`."""
    outcomes: list[Outcome] = []
    seconds: dict[str, Counter[str]] = {}
    run_ids: set[str] = set()
    models: set[str] = set()
    for episode in episodes:
        outcomes.append(outcome(episode))
        run_ids.add(episode.run_id)
        spent = seconds.setdefault(episode.task.task_id, Counter())
        for turn in episode.turns:
            models.add(turn.completion.model)
            spent.update(waits(turn))
    return Gathered(tuple(outcomes), tuple(places), seconds, tuple(sorted(run_ids)), tuple(sorted(models)))


def waits(turn: Turn) -> dict[str, float]:
    """Wall seconds of one turn by what was waited for; together they are the turn's."""
    phases = {name: max(0.0, s) for name, s in turn.verdict.seconds.items() if name != "total"}
    known = sum(phases.values())
    return {
        "place at the model": turn.times.model_queue_s,
        "model": turn.times.model_s,
        **{f"verdict: {name}": s for name, s in phases.items()},
        "verdict: rest": max(0.0, turn.times.bench_s - known),
    }


def read_again(found: Survey, gathered: Gathered, chosen: Sequence[int]) -> Iterator[Episode]:
    """The episodes at these indices of `gathered.outcomes`, whole, in the order of the survey."""
    rows: dict[str, list[int]] = {}
    for key, row in (gathered.places[index] for index in sorted(chosen)):
        rows.setdefault(key, []).append(row)
    yield from read_episodes(replace(found, rows={key: tuple(held) for key, held in rows.items()}))
