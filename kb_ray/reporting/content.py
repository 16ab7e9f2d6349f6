"""Everything the page says, as JSON values: the metrics of each set of episodes, the tasks, the episodes shown.

Decides which sets there are (the same as in the metrics) and what a row of the task table holds. Makes no markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kb_ray.reporting.figure import STATUS_COLOURS
from kb_ray.reporting.figures import figures
from kb_ray.reporting.gathering import Gathered
from kb_ray.reporting.sampling import stratum
from kb_ray.score.baselines import published
from kb_ray.score.metrics import summarise_outcomes
from kb_ray.score.outcomes import Outcome
from kb_ray.score.summary import Scope, Summary
from kb_ray.statuses import STAGE_ORDER

_STATUS_ORDER = ("ok", *(status.value for status in STATUS_COLOURS if status.value != "ok"))


def content(gathered: Gathered, *, summary: Summary | None = None) -> dict[str, Any]:
    """The page's numbers. `summary` saves making the metrics again where they are at hand, of all outcomes."""
    found = gathered.outcomes
    summary = summary or summarise_outcomes(found)
    flagged = frozenset(summary.flagged_tasks)
    return {
        "timed": summary.timed,
        "episodes": len(found),
        "runs": gathered.run_ids,
        "models": gathered.models,
        "colours": {status.value: colour for status, colour in STATUS_COLOURS.items()},
        "scopes": [
            _scope(key, label, part, [item for item in found if belongs(item)], gathered.seconds)
            for key, label, part, belongs in _sets(summary, flagged)
        ],
        "published": published(found),
        "tasks": task_table(found, flagged),
    }


def task_table(found: Sequence[Outcome], flagged: Collection[str]) -> dict[str, list[Any]]:
    """One entry for each task in every column, sorted by task id."""
    groups: dict[str, list[Outcome]] = {}
    for item in found:
        groups.setdefault(item.task_id, []).append(item)
    rows = [_task_row(task_id, groups[task_id], task_id in flagged) for task_id in sorted(groups)]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def episode_index(item: Outcome, chunk: int) -> dict[str, Any]:
    """What the list of shown episodes says of one, and where its texts are."""
    best = item.best_answer
    return {
        "id": item.episode_id,
        "task": item.task_id,
        "sample": item.sample,
        "stop": item.stop_reason,
        "status": stratum(item),
        "statuses": [turn.status for turn in item.turns],
        "speedup": best.speedup if best else None,
        "chunk": chunk,
    }


def _sets(summary: Summary, flagged: frozenset[str]) -> list[tuple[str, str, Scope, Callable[[Outcome], bool]]]:
    def kept(item: Outcome) -> bool:
        return item.task_id not in flagged

    def of_level(name: str) -> Callable[[Outcome], bool]:
        return lambda item: kept(item) and ("none" if item.level is None else str(item.level)) == name

    def of_source(name: str) -> Callable[[Outcome], bool]:
        return lambda item: kept(item) and item.source == name

    sets: list[tuple[str, str, Scope, Callable[[Outcome], bool]]] = [
        ("overall", "All tasks" if not flagged else "All tasks but flagged ones", summary.overall, kept)
    ]
    sets += [(f"source:{name}", f"Source {name}", part, of_source(name)) for name, part in summary.by_source.items()]
    sets += [
        (f"level:{name}", "No level" if name == "none" else f"Level {name}", part, of_level(name))
        for name, part in summary.by_level.items()
    ]
    if summary.flagged is not None:
        sets.append(("flagged", "Flagged tasks", summary.flagged, lambda item: not kept(item)))
    if summary.everything is not None:
        sets.append(("everything", "Everything, flagged tasks too", summary.everything, lambda item: True))
    return sets


def _scope(
    key: str, label: str, part: Scope, found: Sequence[Outcome], seconds: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    spent: Counter[str] = Counter()
    for task_id in dict.fromkeys(item.task_id for item in found):
        spent.update(seconds.get(task_id, {}))
    # The curve stands in its figure.
    metrics = part.model_dump(exclude={"curve"})
    return {"key": key, "label": label, "metrics": metrics, "figures": figures(part, found, spent)}


def _task_row(task_id: str, group: Sequence[Outcome], flagged: bool) -> dict[str, Any]:
    """Answers count where their episode was judged, as in the metrics; episodes and tokens are all there were."""
    first, judged = group[0], [item for item in group if item.judged]
    speedups = [item.best_answer.speedup for item in judged if item.best_answer and item.best_answer.speedup]
    solved = [item.solved_at + 1 for item in judged if item.solved_at is not None]
    return {
        "task": task_id,
        "source": first.source,
        "level": first.level,
        "flagged": flagged,
        "episodes": len(group),
        "correct": len(solved),
        "status": _furthest(judged) if judged else first.stop_reason,
        "speedup": max(speedups, default=None),
        "solved_at": min(solved, default=None),
        "tokens": sum(turn.tokens for item in group for turn in item.turns),
    }


def _furthest(group: Sequence[Outcome]) -> str:
    """The status of the answer that got furthest; without an answer why there is none."""
    answers = [item.best_answer for item in group if item.best_answer]
    if not answers:
        return group[0].stop_reason
    stages = {stage.value: order for stage, order in STAGE_ORDER.items()}
    best = max(answers, key=lambda turn: (turn.correct, stages[turn.stage], -_STATUS_ORDER.index(turn.status)))
    return best.status
