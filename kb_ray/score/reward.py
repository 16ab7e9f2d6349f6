"""The second document's staged reward: what one answer is worth, from 0 to 1, by how far it got.

Only this one scale, for evaluation; knows no episode, no discount and no training.
"""

from __future__ import annotations

from kb_ray.records import Stage, Status
from kb_ray.score.outcomes import TurnOutcome
from kb_ray.statuses import STAGE_ORDER

COMPILED, TINY, FULL = 0.3, 0.5, 0.7
SPEED_SHARE = 0.3
FULL_SPEEDUP = 2.0
"""The speedup from which more earns nothing more."""


def staged_reward(turn: TurnOutcome) -> float:
    """0.3 where the kernel compiled, 0.5 where it passed the tiny run, 0.7 where it is right on full inputs, and
    up to 0.3 more for its speed, in proportion up to a speedup of 2.

    A hack earns 0, and so does a right and timed answer that is not trusted. Without a GPU a right answer
    earns 0.7.
    """
    if not turn.compiled or turn.status in (Status.HACK.value, Status.INFRA_ERROR.value):
        return 0.0
    if turn.correct:
        if turn.speedup is None:
            return 0.0 if turn.timed else FULL
        return FULL + SPEED_SHARE * min(turn.speedup / FULL_SPEEDUP, 1.0)
    reached = STAGE_ORDER[Stage(turn.stage)]
    return TINY if reached >= STAGE_ORDER[Stage.FULL] else COMPILED if reached >= STAGE_ORDER[Stage.TINY] else 0.0
