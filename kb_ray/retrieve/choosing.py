"""Which of the nearest examples are shown: each program once, unlike each other, within a budget.

Pure. Scores come from any search; likeness between programs is the overlap of their runs of tokens, which means the
same for every index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kb_ray.retrieve.computed import telling_entry
from kb_ray.retrieve.program import Core, overlap

RELEVANCE_WEIGHT = 0.75
"""Weight of nearness to the task against unlikeness to the examples chosen before (maximal marginal relevance)."""
TWINS = 0.8
"""Overlap from which two examples show the same thing: one of them is enough while there are others."""

Merit = tuple[float, ...]


@dataclass(frozen=True)
class Candidate:
    """An example that may be shown."""

    row: int
    score: float
    """The higher, the nearer to the task."""
    core: Core
    merit: Merit
    """What speaks for it among kernels of one program, `example.merit`."""
    tokens: int
    """That it takes in the prompt, about."""
    operations: str = ""
    """What its program computes, as `computed.operations` gives it."""


@dataclass(frozen=True)
class Choice:
    """What is shown of a pool."""

    chosen: list[Candidate]
    """The best first."""
    programs: int
    """Different programs in the pool."""
    unlike: bool
    """Whether no two of them are twins."""


def choose(pool: Sequence[Candidate], count: int, budget: int) -> Choice:
    """`count` candidates whose tokens sum to at most `budget`; fewer only where no `count` fit.

    The first is the nearest that leaves room for the others; each further one is near to the task and unlike those
    before it, and no twin of one while any other fits. Of several kernels for one program the best is taken that
    leaves room for the others.
    """
    left = _by_program(pool)
    programs, fit = len(left), _how_many_fit(left, count, budget)
    low, high = _range(pool)
    chosen, unlike = list[Candidate](), True
    while len(chosen) < fit:
        room = budget - sum(candidate.tokens for candidate in chosen)
        able = _able(left, room, fit - len(chosen) - 1)
        alike = {c.row: max((likeness(c, other) for other in chosen), default=0.0) for c in able}
        fresh = [c for c in able if alike[c.row] < TWINS]
        best = max(fresh or able, key=lambda c: _worth(c, alike[c.row], low, high))
        unlike = unlike and bool(fresh)
        chosen.append(best)
        left = [kernels for kernels in left if kernels[0].core.digest != best.core.digest]
    return Choice(chosen, programs, unlike)


def likeness(one: Candidate, other: Candidate) -> float:
    """0 to 1: overlap of two programs; 1 where they are known to compute the same on other numbers."""
    same = telling_entry(one.operations)
    if same and same == telling_entry(other.operations):
        return 1.0
    return overlap(one.core.runs, other.core.runs)


def _by_program(pool: Sequence[Candidate]) -> list[list[Candidate]]:
    """Kernels of each program, the best first; programs in the order of their first."""
    found: dict[str, list[Candidate]] = {}
    for candidate in pool:
        found.setdefault(candidate.core.digest, []).append(candidate)
    return [sorted(kernels, key=lambda c: c.merit, reverse=True) for kernels in found.values()]


def _how_many_fit(left: Sequence[Sequence[Candidate]], count: int, budget: int) -> int:
    total = fit = 0
    for tokens in sorted(map(_least, left))[:count]:
        total += tokens
        fit += total <= budget
    return fit


def _able(left: Sequence[Sequence[Candidate]], room: int, further: int) -> list[Candidate]:
    """Of each program the best kernel that leaves room for the shortest ones of `further` other programs."""
    shortest = sorted((_least(kernels), place) for place, kernels in enumerate(left))[: further + 1]
    places, total = {place for _, place in shortest[:further]}, sum(tokens for tokens, _ in shortest[:further])
    found = []
    for place, kernels in enumerate(left):
        others = total if place not in places else sum(tokens for tokens, _ in shortest) - _least(kernels)
        fitting = next((c for c in kernels if c.tokens + others <= room), None)
        if fitting is not None:
            found.append(fitting)
    return found


def _least(kernels: Sequence[Candidate]) -> int:
    return min(candidate.tokens for candidate in kernels)


def _range(pool: Sequence[Candidate]) -> tuple[float, float]:
    scores = [candidate.score for candidate in pool] or [0.0]
    return min(scores), max(scores)


def _worth(candidate: Candidate, alike: float, low: float, high: float) -> float:
    near = (candidate.score - low) / (high - low) if high > low else 1.0
    return RELEVANCE_WEIGHT * near - (1 - RELEVANCE_WEIGHT) * alike
