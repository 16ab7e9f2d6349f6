"""Which two answers to one task make a pair, better against worse. Pure: works on what verdicts said, not on texts.

Correct beats incorrect; among correct ones, faster beats slower by a margin, where both speeds are trusted. What
cannot be relied on (a failure of our own, a correct answer that something is held against) is in no pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

OVER_INCORRECT = "correct_over_incorrect"
OVER_SLOWER = "faster_over_slower"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one answer, and where it is."""

    key: str
    """File of the store."""
    row: int
    turn: int
    correct: bool
    """Correct, and nothing held against it."""
    speedup: float | None
    """Trusted speedup."""
    progress: int
    """How far a wrong answer got: stages, then input sets."""
    text: int = 0
    """Hash of what it says: nothing is better than itself, whatever two verdicts on it were."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One preference."""

    chosen: Answer
    rejected: Answer
    kind: str


def pairs(answers: Sequence[Answer], *, margin: float, most: int) -> list[Pair]:
    """At most `most` pairs of these answers to one task, of both kinds in turn, each with as many answers as can be.

    The best come first: a wrong answer that got far, a large difference in speed.
    """
    right = sorted((a for a in answers if a.correct), key=_speed, reverse=True)
    wrong = sorted((a for a in answers if not a.correct), key=lambda a: a.progress, reverse=True)
    kinds = zip_longest(_over_incorrect(right, wrong), _over_slower(right, margin))
    found = (pair for pair in chain.from_iterable(kinds) if pair is not None)
    return list(islice(found, most))


def _over_incorrect(right: Sequence[Answer], wrong: Sequence[Answer]) -> Iterator[Pair]:
    """Every wrong answer once, then again with the next best right one."""
    for shift in range(len(right)):
        for i, worse in enumerate(wrong):
            better = right[(i + shift) % len(right)]
            if not _same(better, worse):
                yield Pair(better, worse, OVER_INCORRECT)


def _over_slower(right: Sequence[Answer], margin: float) -> Iterator[Pair]:
    """The fastest over the slowest first."""
    timed = [answer for answer in right if answer.speedup]
    for better in timed:
        for worse in reversed(timed):
            apart = _speed(better) > _speed(worse) and _speed(better) >= margin * _speed(worse)
            if apart and not _same(better, worse):
                yield Pair(better, worse, OVER_SLOWER)


def _same(one: Answer, other: Answer) -> bool:
    return one.text == other.text and one.text != 0


def _speed(answer: Answer) -> float:
    return answer.speedup or 0.0
