"""What one verdict is worth: the second document's staged reward, the third's weighted one, Kevin's.

One function, `reward`, decides whether a verdict may be a reward at all. Knows one verdict: no episode, no discount,
no tokens.
"""

from __future__ import annotations

from typing import Literal

from kb_ray.records import Record, Stage, Status, Verdict
from kb_ray.statuses import STAGE_ORDER

Scheme = Literal["staged", "weighted", "kevin"]

COMPILED, TINY, FULL = 0.3, 0.5, 0.7
SPEED_SHARE = 0.3
FULL_SPEEDUP = 2.0
"""The speedup from which more earns nothing more, in the staged and the weighted reward."""
KEVIN_CORRECT = 0.3


class Weights(Record):
    """The third document's weights of its four parts, each of which is from 0 to 1."""

    format: float = 0.0
    """Code that may be run was given."""
    compile: float = 0.0
    correctness: float = 0.0
    """The share of tests passed; all of it only for a correct kernel."""
    speed: float = 0.0
    """Of a correct kernel: its speedup, in proportion up to 2."""


PRESETS: dict[str, Weights] = {
    "stage1": Weights(format=0.3, compile=0.5, correctness=0.2),
    "stage2": Weights(format=0.1, compile=0.2, correctness=0.7),
    "stage3": Weights(format=0.05, compile=0.1, correctness=0.5, speed=0.35),
}
"""The third document's three stages. Of the third it gives correctness and speed; the rest of 1 is ours."""


class RewardRule(Record):
    """How verdicts become rewards."""

    scheme: Scheme = "kevin"
    weights: Weights = PRESETS["stage2"]
    """Of the scheme `weighted`."""
    allow_untimed: bool = False
    """Verdicts of a CPU are rewards too, for correctness alone. For tests: its interpreter is no GPU."""


def reward(verdict: Verdict, rule: RewardRule, *, flagged: bool = False) -> float | None:
    """The reward of a verdict; None where it may not be one, which is never the same as 0.

    None: a failure of our own; a CPU's verdict, unless allowed; a correct kernel whose verdict is not trusted, or, on a
    CPU, whose task is `flagged`. A hack is 0 under every scheme.
    """
    on_cpu = verdict.env.device == "cpu"
    if verdict.status is Status.INFRA_ERROR or (on_cpu and not rule.allow_untimed):
        return None
    if verdict.correct and not (verdict.trusted or (on_cpu and not flagged)):
        return None
    if verdict.status is Status.HACK:
        return 0.0
    if rule.scheme == "staged":
        return staged(verdict)
    if rule.scheme == "weighted":
        return weighted(verdict, rule.weights)
    return kevin(verdict)


def staged(verdict: Verdict) -> float:
    """0 for a kernel that did not compile, 0.3 where it did, 0.5 where it passed the tiny run, 0.7 where it is right on
    all inputs, and up to 0.3 more for its speed, in proportion up to a speedup of 2.

    A kernel that is right on some of the full inputs earns that share of 0.7, if that is more than 0.5: the second
    document multiplies by a partial credit that it does not define. A hack earns 0, and so does a right and timed
    kernel that is not trusted. Without a GPU a right kernel earns 0.7.
    """
    if not verdict.compiled or verdict.status in (Status.HACK, Status.INFRA_ERROR):
        return 0.0
    if verdict.correct:
        if verdict.timed and not verdict.trusted:
            return 0.0
        return FULL + (SPEED_SHARE * _speed(verdict) if verdict.trusted else 0.0)
    reached = STAGE_ORDER[verdict.stage]
    if reached < STAGE_ORDER[Stage.TINY]:
        return 0.0
    if reached < STAGE_ORDER[Stage.FULL]:
        return COMPILED
    return max(TINY, FULL * _share_passed(verdict)) if verdict.stage is Stage.FULL else TINY


def weighted(verdict: Verdict, weights: Weights) -> float:
    """The sum of the third document's four parts."""
    correctness = 1.0 if verdict.correct else _share_passed(verdict) if verdict.stage is Stage.FULL else 0.0
    return (
        weights.format * verdict.valid
        + weights.compile * verdict.compiled
        + weights.correctness * correctness
        + weights.speed * _speed(verdict)
    )


def kevin(verdict: Verdict) -> float:
    """0.3 for a correct kernel plus its speedup; 0 for any other (Baronio and others, 2025)."""
    if not verdict.correct:
        return 0.0
    return KEVIN_CORRECT + (verdict.speedup or 0.0 if verdict.trusted else 0.0)


def _speed(verdict: Verdict) -> float:
    if not verdict.correct or not verdict.trusted or verdict.speedup is None:
        return 0.0
    return min(verdict.speedup / FULL_SPEEDUP, 1.0)


def _share_passed(verdict: Verdict) -> float:
    """Below 1: a kernel that passed them all and is still wrong is wrong."""
    share = verdict.tests_passed / verdict.tests_total if verdict.tests_total else 0.0
    return min(share, 1.0) if share < 1.0 else 0.0
