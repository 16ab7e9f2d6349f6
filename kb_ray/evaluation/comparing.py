"""The episodes of two stores side by side: which tasks are compared, and flagged ones apart from the rest.

The differences themselves are made in kb_ray.score.pairing. Reads no store and prints nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kb_ray.evaluation.options import EvaluateOptions
from kb_ray.evaluation.results import first_tasks
from kb_ray.score.outcomes import Outcome, flagged_tasks
from kb_ray.score.pairing import Comparison, compare


@dataclass(frozen=True)
class Compared:
    """Two runs, compared."""

    comparison: Comparison
    """Over the tasks that neither run shows to be flagged."""
    flagged: Comparison | None
    """Over the others; None where both runs judged none of them, or they are excluded."""
    flagged_tasks: tuple[str, ...]
    """Ids, sorted."""

    @property
    def tasks(self) -> int:
        """Tasks in both, flagged ones among them."""
        return self.comparison.tasks + (self.flagged.tasks if self.flagged else 0)

    def as_json(self) -> dict[str, Any]:
        """What comparison.json holds of it."""
        apart = self.flagged.model_dump(mode="json") if self.flagged else None
        return {
            **self.comparison.model_dump(mode="json"),
            "flagged": apart,
            "flagged_tasks": list(self.flagged_tasks),
        }


def compared(first: Sequence[Outcome], second: Sequence[Outcome], options: EvaluateOptions) -> Compared:
    """Second against first. --num-tasks takes the first tasks of those that both judged, the same ones of both."""
    flagged = flagged_tasks(first) | flagged_tasks(second)
    excluded = flagged if options.exclude_flagged else frozenset()
    both = (_judged(first) & _judged(second)) - excluded
    wanted = (_judged(first) | _judged(second)) - excluded
    if options.num_tasks is not None:
        wanted = first_tasks(both, options.num_tasks)
    apart = compare(_of(first, wanted & flagged), _of(second, wanted & flagged)) if both & wanted & flagged else None
    plain = compare(_of(first, wanted - flagged), _of(second, wanted - flagged))
    return Compared(plain, apart, tuple(sorted(flagged)))


def _judged(found: Sequence[Outcome]) -> frozenset[str]:
    return frozenset(item.task_id for item in found if item.judged)


def _of(found: Sequence[Outcome], tasks: Collection[str]) -> list[Outcome]:
    return [item for item in found if item.task_id in tasks]
