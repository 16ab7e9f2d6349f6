"""Metrics of one answer for each episode: how far it got, whether it is right, how fast it is.

Does not choose the answer: the best turn's, the last turn's or that of one turn is the caller's to pick. An
episode without an answer (its prompt never fitted) counts as one that is neither valid, compiled nor correct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kb_ray.score.estimates import Grouping, rate, undefined
from kb_ray.score.formulas import CURVE_AT, FAST_P_AT, NOTHING, speed_reached
from kb_ray.score.outcomes import TurnOutcome
from kb_ray.score.summary import Answers, Estimate, FastP

Given = Sequence[TurnOutcome | None]
"""The answer of each episode, in the order of the grouping's members."""


def answers(given: Given, by_task: Grouping, timed: bool) -> Answers:
    """Metrics of the answers. Where nothing is timed, everything about speed but fast_0 is undefined."""

    def share(test: Callable[[TurnOutcome], bool]) -> Estimate:
        return rate([turn is not None and test(turn) for turn in given])

    reached = np.array([speed_reached(turn.speedup, turn.correct) if turn else NOTHING for turn in given], dtype=float)

    def fast(p: float) -> Estimate:
        return by_task.share_of_tasks(reached > p) if timed or p == 0 else undefined()

    speedups = [
        (task, turn.speedup)
        for task, turn in zip(by_task.tasks, given, strict=True)
        if turn is not None and turn.speedup is not None
    ]
    return Answers(
        valid=share(lambda turn: turn.valid),
        compiled=share(lambda turn: turn.compiled),
        correct=share(lambda turn: turn.correct),
        trusted=share(lambda turn: turn.correct and turn.trusted),
        fast_p=tuple(FastP(p=p, share=fast(p)) for p in FAST_P_AT),
        fast_2_at_least=by_task.share_of_tasks(reached >= 2) if timed else undefined(),
        speedup_mean=by_task.mean(speedups),
        speedup_median=by_task.median(speedups),
        speedup_geomean=by_task.geometric_mean(speedups),
    )


def curve(given: Given, by_task: Grouping) -> tuple[tuple[float, float], ...]:
    """(p, fast_p) at CURVE_AT; there must be a task."""
    values = [speed_reached(turn.speedup, turn.correct) if turn else NOTHING for turn in given]
    return tuple(zip(CURVE_AT, by_task.shares_above(values, CURVE_AT), strict=True))
