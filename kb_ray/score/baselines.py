"""Published numbers beside ours, where both say the same thing: same tasks, same answer, same share.

A table and a lookup. Other people's numbers were found on other GPUs and by other verifiers; each row says where
it is from. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kb_ray.records import Record
from kb_ray.score.metrics import is_timed, scope
from kb_ray.score.outcomes import Outcome
from kb_ray.score.summary import Answers, Estimate, Scope, Summary


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
    """Tasks of that level among ours."""
    source: str


def published(found: Sequence[Outcome], summary: Summary) -> tuple[PublishedRow, ...]:
    """Rows for which `found`, of which `summary` tells, has KernelBench tasks of the level, judged in the same way.

    Flagged tasks count here as they do in what was published.
    """
    tasks = [item for item in found if item.source == "kernelbench"]
    timed = is_timed(tasks)
    alike = len(tasks) == len(found) and not summary.flagged_tasks
    scopes = {
        # Making the metrics of a level again takes as long as it did the first time.
        level: summary.by_level[str(level)] if alike else scope([t for t in tasks if t.level == level], timed)
        for level in sorted({item.level for item in tasks if item.level is not None})
    }
    return tuple(
        PublishedRow(
            system=row.system, metric=row.metric, level=level, turns=row.turns, published=share, ours=ours,
            tasks=scopes[level].tasks, source=row.source,
        )
        for row in _TABLE
        for level, share in row.shares.items()
        if level in scopes and (ours := _ours(row, scopes[level])) is not None
    )  # fmt: skip


def _ours(row: _Published, part: Scope) -> Estimate | None:
    answers = _answers(row.turns, part)
    if answers is None:
        return None
    if row.metric == "correct":
        return answers.correct
    share = next(item.share for item in answers.fast_p if item.p == 1.0)
    return share if share.value is not None else None


def _answers(turns: int, part: Scope) -> Answers | None:
    if turns == 1:
        return part.turns[0].answers if part.turns else None
    return part.best if len(part.turns) == turns else None
