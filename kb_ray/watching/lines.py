"""Lines of a JSON log about turns and episodes: which facts of them are worth a line. No text of a model or a task.

Does not know the format of a line, nor what else is logged.
"""

from __future__ import annotations

from kb_ray import logs
from kb_ray.records import Episode, Turn


def turned(task_id: str, turn: Turn) -> None:
    """A turn has its verdict."""
    verdict = turn.verdict
    logs.tell(
        f"turn {turn.index + 1} of {task_id}: {verdict.status}",
        "turn",
        task_id=task_id,
        turn=turn.index,
        status=verdict.status.value,
        stage=verdict.stage.value,
        speedup=verdict.speedup,
        completion_tokens=turn.completion.usage.completion_tokens,
        model_s=round(turn.times.model_s, 3),
        bench_s=round(turn.times.bench_s, 3),
    )


def ended(episode: Episode) -> None:
    """An episode is over and handed to the store."""
    logs.tell(
        f"episode of {episode.task.task_id} ended: {episode.stop_reason}",
        "episode",
        task_id=episode.task.task_id,
        sample=episode.sample,
        attempt=episode.attempt,
        stop_reason=episode.stop_reason.value,
        turns=len(episode.turns),
        correct=any(turn.verdict.correct for turn in episode.turns),
        error=episode.error,
    )
