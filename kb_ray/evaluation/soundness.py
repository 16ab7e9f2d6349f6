"""Rows whose trusted speedup is no number that a speedup can have: damaged, though each is an Episode.

One of them would turn a mean into nonsense, or end it. Reads episodes of a survey; makes no metric.
"""

from __future__ import annotations

import math
from dataclasses import replace

from kb_ray.errors import ConfigError
from kb_ray.records import Episode
from kb_ray.score.outcomes import Outcome, outcome
from kb_ray.traces.reading import Damaged, Survey, read_episodes

_NAMED = 3


def sound_outcomes(found: Survey, *, skip_corrupt: bool) -> tuple[Survey, list[Outcome]]:
    """Outcomes of a survey in its order, and the survey of just those.

    ConfigError, in one line, where a row is damaged; with `skip_corrupt` it is left out and named in `damaged`.
    """
    kept: dict[str, list[int]] = {}
    made, damaged = [], []
    places = ((key, row) for key, held in found.rows.items() for row in held)
    for (key, row), episode in zip(places, read_episodes(found), strict=True):
        odd = _odd_speedup(episode)
        if odd is not None:
            reason = f"row {row} ({episode.task.task_id}, sample {episode.sample}): a trusted speedup of {odd:g}"
            damaged.append(Damaged(key, reason))
        else:
            kept.setdefault(key, []).append(row)
            made.append(outcome(episode))
    if not damaged:
        return found, made
    if not skip_corrupt or not made:
        told = "; ".join(f"{one.key}: {one.reason}" for one in damaged[:_NAMED])
        more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        raise ConfigError(
            f"trace store {found.store.uri} is damaged: {told}{more}; --skip-corrupt leaves such rows out"
        )
    rows = {key: tuple(held) for key, held in kept.items()}
    return replace(found, rows=rows, damaged=(*found.damaged, *damaged)), made


def _odd_speedup(episode: Episode) -> float | None:
    """The first trusted speedup that is not above 0 and finite."""
    for turn in episode.turns:
        speedup = turn.verdict.speedup
        if turn.verdict.trusted and speedup is not None and not (math.isfinite(speedup) and speedup > 0):
            return speedup
    return None
