"""Two runs over the same tasks: differences per task, with intervals, and the tasks gained and lost.

Paired: each task is its own control, so that a hard task counts against neither. Compares the best of turns.
Knows no store and no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from kb_ray.records import Record
from kb_ray.score.estimates import Grouping
from kb_ray.score.formulas import mean, speed_reached
from kb_ray.score.metrics import is_timed
from kb_ray.score.outcomes import Outcome, TurnOutcome
from kb_ray.score.summary import Estimate


class Difference(Record):
    """One measure of both runs. Shares are of a task's samples, then over tasks."""

    name: str
    first: float | None
    second: float | None
    difference: Estimate
    """second - first; for `speedup` the ratio second / first."""


class Comparison(Record):
    """Second run against first, over the tasks that both judged."""

    tasks: int
    only_first: int
    """Tasks that only the first run judged."""
    only_second: int
    samples_first: int = 0
    """Judged samples of the tasks in both."""
    samples_second: int = 0
    uneven: int = 0
    """Tasks in both of which one run judged more samples than the other."""
    differences: tuple[Difference, ...]
    gained: tuple[str, ...]
    """Ids of tasks that a sample of the second run solved and none of the first, sorted."""
    lost: tuple[str, ...]

    @property
    def note(self) -> str | None:
        """What a reader of `gained` and `lost` has to know; None where both runs had as many tries at every task."""
        if not self.uneven:
            return None
        return (
            f"Not as many samples on both sides of {self.uneven} tasks ({self.samples_first} and {self.samples_second} "
            "over all in both): rates are of single samples, but gained and lost ask whether any sample solved a task, "
            "which more samples do sooner."
        )


def compare(first: Sequence[Outcome], second: Sequence[Outcome]) -> Comparison:
    """Paired differences. Where no task is in both, `tasks` is 0 and nothing else is said."""
    one, two = _by_task(first), _by_task(second)
    shared = sorted(one.keys() & two.keys())
    # A side that ran no code at all was timed as well as the other.
    timed = is_timed([*first, *second]) and all(
        is_timed(side) or not any(item.devices for item in side) for side in (first, second)
    )
    measures: list[tuple[str, Callable[[Outcome], bool]]] = [
        ("valid", _of(lambda turn: turn.valid)),
        ("compiled", _of(lambda turn: turn.compiled)),
        ("correct", _of(lambda turn: turn.correct)),
    ]
    if timed:
        measures += [("fast_1", _of(_faster(1.0))), ("fast_1.5", _of(_faster(1.5)))]
        # Sources disagree about this one: both are shown, under names of their own.
        measures += [("fast_2 (> 2)", _of(_faster(2.0))), ("fast_2 (>= 2)", _of(_as_fast(2.0)))]
    rows = [_shares(name, test, one, two, shared) for name, test in measures] if shared else []
    return Comparison(
        tasks=len(shared),
        only_first=len(one.keys() - two.keys()),
        only_second=len(two.keys() - one.keys()),
        samples_first=sum(len(one[task]) for task in shared),
        samples_second=sum(len(two[task]) for task in shared),
        uneven=sum(len(one[task]) != len(two[task]) for task in shared),
        differences=tuple([*rows, _speed(one, two, shared)] if shared and timed else rows),
        gained=tuple(task for task in shared if _solved(two[task]) and not _solved(one[task])),
        lost=tuple(task for task in shared if _solved(one[task]) and not _solved(two[task])),
    )


_Runs = dict[str, list[Outcome]]


def _by_task(found: Iterable[Outcome]) -> _Runs:
    runs: _Runs = {}
    for item in sorted(found, key=lambda one: (one.task_id, one.sample)):
        if item.judged:
            runs.setdefault(item.task_id, []).append(item)
    return runs


def _of(test: Callable[[TurnOutcome], bool]) -> Callable[[Outcome], bool]:
    return lambda item: item.best_answer is not None and test(item.best_answer)


def _as_fast(p: float) -> Callable[[TurnOutcome], bool]:
    return lambda turn: speed_reached(turn.speedup, turn.correct) >= p


def _faster(p: float) -> Callable[[TurnOutcome], bool]:
    return lambda turn: speed_reached(turn.speedup, turn.correct) > p


def _solved(samples: Iterable[Outcome]) -> bool:
    return any(item.solved_at is not None for item in samples)


def _shares(name: str, test: Callable[[Outcome], bool], one: _Runs, two: _Runs, shared: Sequence[str]) -> Difference:
    before = [_share(test, one[task]) for task in shared]
    after = [_share(test, two[task]) for task in shared]
    changes = [(task, new - old) for task, old, new in zip(shared, before, after, strict=True)]
    return Difference(name=name, first=mean(before), second=mean(after), difference=Grouping(shared).mean(changes))


def _share(test: Callable[[Outcome], bool], samples: Sequence[Outcome]) -> float:
    return sum(test(item) for item in samples) / len(samples)


def _speed(one: _Runs, two: _Runs, shared: Sequence[str]) -> Difference:
    """Geometric mean speedup over the tasks with a counted speed in both."""
    logs = [(task, _log_speed(one[task]), _log_speed(two[task])) for task in shared]
    both = [(task, old, new) for task, old, new in logs if old is not None and new is not None]
    ratio = Grouping([task for task, _, _ in both]).geometric_mean(
        [(task, math.exp(new - old)) for task, old, new in both]
    )
    old_mean, new_mean = mean([old for _, old, _ in both]), mean([new for _, _, new in both])
    return Difference(
        name="speedup",
        first=None if old_mean is None else math.exp(old_mean),
        second=None if new_mean is None else math.exp(new_mean),
        difference=ratio,
    )


def _log_speed(samples: Iterable[Outcome]) -> float | None:
    answers = (item.best_answer for item in samples)
    return mean([math.log(turn.speedup) for turn in answers if turn is not None and turn.speedup is not None])
