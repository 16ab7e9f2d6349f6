"""The third document's metrics of answers and tries, under its names: one definition for training and evaluation.

Rates of kernel quality are over answers, those of tries over the tries that have one; turns count from 1. Knows no
verdict, no store and no TensorBoard.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Answer(NamedTuple):
    """What is counted of one answer."""

    valid: bool
    compiled: bool
    correct: bool
    cheat: bool
    passed: float
    """Share of tests, 0 to 1."""


def spread(name: str, rewards: Sequence[float]) -> dict[str, float]:
    """Of the tries' rewards; empty of none."""
    if not rewards:
        return {}
    return {
        f"{name}/Mean": statistics.fmean(rewards),
        f"{name}/StdDev": statistics.pstdev(rewards),
        f"{name}/Min": min(rewards),
        f"{name}/Max": max(rewards),
    }


def quality(answers: Sequence[Answer]) -> dict[str, float]:
    """Shares of answers, whichever turn they were given in; empty of none."""
    if not answers:
        return {}
    return {
        "KernelQuality/FormatRate": statistics.fmean(answer.valid for answer in answers),
        "KernelQuality/CompileRate": statistics.fmean(answer.compiled for answer in answers),
        "KernelQuality/CorrectRate": statistics.fmean(answer.correct for answer in answers),
        "KernelQuality/CheatRate": statistics.fmean(answer.cheat for answer in answers),
    }


def multiturn(tries: Sequence[Sequence[Answer]]) -> dict[str, float]:
    """Of the tries with an answer, each its answers in their order; empty of none."""
    begun = [answers for answers in tries if answers]
    if not begun:
        return {}
    ends = [next((n for n, answer in enumerate(one, 1) if answer.correct), len(one)) for one in begun]
    found = {
        "multiturn/success_rate": statistics.fmean(any(answer.correct for answer in one) for one in begun),
        "multiturn/avg_turns": statistics.fmean(ends),
        **_rates("multiturn", [answer for one in begun for answer in one]),
        "multiturn/max_correct_per_trajectory": statistics.fmean(
            max(1.0 if answer.correct else answer.passed for answer in one) for one in begun
        ),
    }
    for turn in range(max(map(len, begun))):
        found |= _rates(f"multiturn/turn_{turn + 1}", [one[turn] for one in begun if len(one) > turn])
    return found


def _rates(name: str, answers: Sequence[Answer]) -> dict[str, float]:
    return {
        f"{name}/compile_rate": statistics.fmean(answer.compiled for answer in answers),
        f"{name}/correct_rate": statistics.fmean(answer.correct for answer in answers),
    }
