"""Which of the nearest examples are shown: not the task itself, each program once, unlike each other, within a budget.

Pure. Scores come from any search; likeness between programs is the overlap of their runs of tokens, which means the
same for every index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kb_ray.retrieve.program import Core, overlap

RELEVANCE_WEIGHT = 0.75
"""Weight of nearness to the task against unlikeness to the examples chosen before (maximal marginal relevance)."""


@dataclass(frozen=True)
class Candidate:
    """An example that may be shown."""

    row: int
    score: float
    """The higher, the nearer to the task."""
    core: Core
    merit: tuple[bool, float]
    """What speaks for it among kernels of one program: verified, speedup."""
    tokens: int
    """That it takes in the prompt, about."""


@dataclass(frozen=True)
class Leaks:
    """What of a pool is the task itself."""

    clean: list[Candidate]
    leaked: list[Candidate]


def without_leaks(pool: Sequence[Candidate], task: Core, threshold: float) -> Leaks:
    """Takes out programs that are the task's under other names, or share at least `threshold` of its runs."""
    clean, leaked = list[Candidate](), list[Candidate]()
    for candidate in pool:
        same = candidate.core.digest == task.digest or overlap(candidate.core.runs, task.runs) >= threshold
        (leaked if same else clean).append(candidate)
    return Leaks(clean, leaked)


def one_per_program(pool: Sequence[Candidate]) -> list[Candidate]:
    """Of candidates with one program the one of most merit, at the place of the first of them."""
    best: dict[str, Candidate] = {}
    for candidate in pool:
        held = best.get(candidate.core.digest)
        if held is None or candidate.merit > held.merit:
            best[candidate.core.digest] = candidate
    return list(best.values())


def choose(pool: Sequence[Candidate], count: int, budget: int) -> list[Candidate]:
    """`count` candidates whose tokens sum to at most `budget`, the best first; fewer only where no `count` fit.

    The first is the nearest that leaves room for the others; each further one is near to the task and unlike those
    before it.
    """
    count = _how_many_fit(pool, count, budget)
    low, high = _range(pool)
    chosen: list[Candidate] = []
    left = list(pool)
    while len(chosen) < count:
        room = budget - sum(candidate.tokens for candidate in chosen)
        able = [c for c in left if c.tokens + _least(left, c, count - len(chosen) - 1) <= room]
        best = max(able, key=lambda c: _merit(c, chosen, low, high))
        chosen.append(best)
        left.remove(best)
    return chosen


def _how_many_fit(pool: Sequence[Candidate], count: int, budget: int) -> int:
    total = fit = 0
    for tokens in sorted(candidate.tokens for candidate in pool)[:count]:
        total += tokens
        fit += total <= budget
    return fit


def _least(left: Sequence[Candidate], but: Candidate, count: int) -> int:
    """Tokens of the `count` shortest candidates other than `but`."""
    return sum(sorted(c.tokens for c in left if c is not but)[:count])


def _range(pool: Sequence[Candidate]) -> tuple[float, float]:
    scores = [candidate.score for candidate in pool] or [0.0]
    return min(scores), max(scores)


def _merit(candidate: Candidate, chosen: Sequence[Candidate], low: float, high: float) -> float:
    near = (candidate.score - low) / (high - low) if high > low else 1.0
    alike = max((overlap(candidate.core.runs, other.core.runs) for other in chosen), default=0.0)
    return RELEVANCE_WEIGHT * near - (1 - RELEVANCE_WEIGHT) * alike
