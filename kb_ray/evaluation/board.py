"""Metrics of an evaluation for TensorBoard, beside training's: the third document's names, under `Eval/`.

What training logs too is counted by the same code (`score.logged`); the rest is what the table shows. Says which name
each number gets and writes one event file. Does not compute metrics.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence

from kb_ray.errors import ConfigError
from kb_ray.records import Status
from kb_ray.score.logged import Answer, multiturn, quality, spread
from kb_ray.score.metrics import best_speedups
from kb_ray.score.outcomes import Outcome
from kb_ray.score.summary import Answers, Estimate, Summary


def log(folder: str, step: int, summary: Summary, found: Sequence[Outcome]) -> int:
    """Writes scalars and histograms at `step`; how many scalars. ConfigError where it cannot."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ConfigError("--tensorboard-log-dir: pip install 'kb-ray[tensorboard]'") from error
    kept = [item for item in found if item.judged and item.task_id not in summary.flagged_tasks]
    rewards = _rewards(kept)
    values = scalars(summary, kept)
    try:
        with SummaryWriter(logdir=os.path.expanduser(folder), write_to_disk=True) as writer:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
            for name, spread in (("Rewards", rewards), ("Speedups", best_speedups(kept))):
                if spread:
                    writer.add_histogram(f"Eval/Distributions/{name}", spread, step)
    except OSError as error:
        raise ConfigError(f"--tensorboard-log-dir: {folder}: {error.strerror or error}") from error
    return len(values)


def scalars(summary: Summary, kept: Sequence[Outcome]) -> dict[str, float]:
    """Name -> value; what is not defined is left out. `kept` are the judged episodes of unflagged tasks."""
    part = summary.overall
    answers = [_answers(item) for item in kept]
    values = spread("Reward", _rewards(kept)) | quality([answer for own in answers for answer in own])
    values |= multiturn(answers)
    values |= _defined(
        {
            "BestOfTurns/ValidRate": part.best.valid,
            "BestOfTurns/CompileRate": part.best.compiled,
            "BestOfTurns/CorrectRate": part.best.correct,
            "Speedup/Mean": part.best.speedup_mean,
            "Speedup/Median": part.best.speedup_median,
            "Speedup/GeoMean": part.best.speedup_geomean,
            **{f"pass_at_k/{item.k}": item.estimate for item in part.pass_at_k},
            **_fast("fast_p", part.best),
        }
    )
    for name in summary.by_level:
        own = [item for item in kept if ("none" if item.level is None else str(item.level)) == name]
        if begun := [item for item in own if item.turns]:
            values[f"PerLevel/{name}/CorrectRate"] = statistics.fmean(item.solved_at is not None for item in begun)
        if own:
            values[f"PerLevel/{name}/RewardMean"] = statistics.fmean(_rewards(own))
    return {f"Eval/{name}": value for name, value in values.items()}


def _answers(item: Outcome) -> list[Answer]:
    return [
        Answer(turn.valid, turn.compiled, turn.correct, turn.status == Status.HACK.value, turn.passed)
        for turn in item.turns
    ]


def _rewards(kept: Sequence[Outcome]) -> list[float]:
    return [0.0 if item.best_answer is None else item.best_answer.reward for item in kept]


def _fast(name: str, answers: Answers) -> dict[str, Estimate]:
    return {f"{name}/{item.p:g}": item.share for item in answers.fast_p}


def _defined(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    return {name: found.value for name, found in estimates.items() if found.value is not None}
