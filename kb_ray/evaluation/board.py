"""Metrics of an evaluation for TensorBoard, beside training's: the third document's names, under `Eval/`.

Says which name each number gets and writes one event file. Does not compute metrics.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from kb_ray.errors import ConfigError
from kb_ray.score.metrics import best_speedups
from kb_ray.score.outcomes import Outcome
from kb_ray.score.summary import Answers, Estimate, Scope, Summary


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
        with SummaryWriter(logdir=str(Path(folder).expanduser()), write_to_disk=True) as writer:
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
    part, rewards = summary.overall, _rewards(kept)
    values: dict[str, float] = {}
    if rewards:
        values |= {
            "Reward/Mean": statistics.fmean(rewards),
            "Reward/StdDev": statistics.pstdev(rewards),
            "Reward/Min": min(rewards),
            "Reward/Max": max(rewards),
        }
    values |= _defined(
        {
            "KernelQuality/FormatRate": part.format,
            "KernelQuality/CompileRate": part.best.compiled,
            "KernelQuality/CorrectRate": part.best.correct,
            "KernelQuality/CheatRate": part.hack,
            "Speedup/Mean": part.best.speedup_mean,
            "Speedup/Median": part.best.speedup_median,
            "Speedup/GeoMean": part.best.speedup_geomean,
            **{f"pass_at_k/{item.k}": item.estimate for item in part.pass_at_k},
            **_fast("fast_p", part.best),
            **_turns(part),
        }
    )
    turns = [turn for item in kept for turn in item.turns]
    if turns:
        values["multiturn/compile_rate"] = statistics.fmean(turn.compiled for turn in turns)
        values["multiturn/correct_rate"] = statistics.fmean(turn.correct for turn in turns)
    for name, level in summary.by_level.items():
        values |= _defined({f"PerLevel/{name}/CorrectRate": level.best.correct})
        rewards = _rewards([item for item in kept if str(item.level).lower() == name])
        if rewards:
            values[f"PerLevel/{name}/RewardMean"] = statistics.fmean(rewards)
    return {f"Eval/{name}": value for name, value in values.items()}


def _rewards(kept: Sequence[Outcome]) -> list[float]:
    return [0.0 if item.best_answer is None else item.best_answer.reward for item in kept]


def _fast(name: str, answers: Answers) -> dict[str, Estimate]:
    return {f"{name}/{item.p:g}": item.share for item in answers.fast_p}


def _turns(part: Scope) -> dict[str, Estimate]:
    """Names of the third document's multi-turn metrics; its turns count from 1 here."""
    found = {
        "multiturn/success_rate": part.success,
        "multiturn/avg_turns": part.turns_used,
        "multiturn/max_correct_per_trajectory": part.best.correct,
    }
    for turn in part.turns:
        found[f"multiturn/turn_{turn.turn}/compile_rate"] = turn.answers.compiled
        found[f"multiturn/turn_{turn.turn}/correct_rate"] = turn.answers.correct
    return found


def _defined(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    return {name: found.value for name, found in estimates.items() if found.value is not None}
