"""Published numbers beside ours, where both say the same thing: same tasks, same answer, same share.

A table and a lookup. Other people's numbers were found on other GPUs and by other verifiers; each row says where
it is from. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kb_ray.records import Record
from kb_ray.score.estimates import Grouping, rate
from kb_ray.score.formulas import speed_reached
from kb_ray.score.metrics import is_timed
from kb_ray.score.outcomes import Outcome, TurnOutcome
from kb_ray.score.summary import Estimate


@dataclass(frozen=True)
class _Published:
    system: str
    metric: Literal["correct", "fast_1"]
    shares: dict[int, float]
    """Per KernelBench level, 0 to 1."""
    source: str
    turns: int = 1
    """Turns of an episode; the best of them counts."""


_TABLE = (
    _Published("TritonRL", "correct", {1: 0.63, 2: 0.07}, "second document, section 5"),
    _Published("Beyond TritonRL, SFT", "correct", {1: 0.12, 2: 0.02}, "second document, section 5"),
    _Published("Beyond TritonRL, best-of-N", "correct", {1: 0.15, 2: 0.03}, "second document, section 5"),
    _Published("DeepSeek-R1, CUDA", "fast_1", {1: 0.12, 2: 0.36, 3: 0.02}, "KernelBench, one answer"),
    _Published("DeepSeek-R1, CUDA", "fast_1", {1: 0.43, 2: 0.72, 3: 0.18}, "KernelBench, best of 10 turns", 10),
    _Published("o1, CUDA", "fast_1", {2: 0.24}, "KernelBench, one answer"),
)


class PublishedRow(Record):
    """One published number and ours."""

    system: str
    metric: str
    level: int
    turns: int
    """1: the first answer; more: the best of so many turns."""
    published: float
    ours: Estimate
    tasks: int
    """Tasks of that level among ours that have a judged episode."""
    source: str


def published(found: Sequence[Outcome]) -> tuple[PublishedRow, ...]:
    """Rows for which `found` has judged KernelBench tasks of the level, over the same episodes as the metrics.

    Flagged tasks that are in `found` count here as they do in what was published.
    """
    tasks = [item for item in found if item.source == "kernelbench"]
    timed = is_timed(found)
    levels: dict[int, list[Outcome]] = {}
    for item in sorted(tasks, key=lambda one: (one.task_id, one.sample)):
        if item.level is not None and item.judged:
            levels.setdefault(item.level, []).append(item)
    return tuple(
        PublishedRow(
            system=row.system, metric=row.metric, level=level, turns=row.turns, published=share, ours=ours,
            tasks=len({item.task_id for item in levels[level]}), source=row.source,
        )
        for row in _TABLE
        for level, share in sorted(row.shares.items())
        if level in levels and (ours := _ours(row, levels[level], timed)) is not None
    )  # fmt: skip


def _ours(row: _Published, judged: Sequence[Outcome], timed: bool) -> Estimate | None:
    given = _answers(row.turns, judged)
    if given is None:
        return None
    if row.metric == "correct":
        return rate([turn is not None and turn.correct for turn in given])
    if not timed:
        return None
    reached = [turn is not None and speed_reached(turn.speedup, turn.correct) > 1 for turn in given]
    return Grouping([item.task_id for item in judged]).share_of_tasks(reached)


def _answers(turns: int, judged: Sequence[Outcome]) -> list[TurnOutcome | None] | None:
    """The answer of every judged episode, None for one whose prompt never fitted; None where turns are not alike."""
    if turns == 1:
        return [item.turns[0] if item.turns else None for item in judged]
    deepest = max(len(item.turns) for item in judged)
    return [item.best_answer for item in judged] if deepest == turns else None
