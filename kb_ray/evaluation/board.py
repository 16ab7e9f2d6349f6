"""Metrics of an evaluation for TensorBoard, beside training's: the third document's names, under `Eval/`.

What training logs too is counted here as there, over answers and over the episodes that have one; the rest is what
the table shows. Says which name each number gets and writes one event file. Does not compute metrics.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from kb_ray.errors import ConfigError
from kb_ray.records import Status
from kb_ray.score.metrics import best_speedups
from kb_ray.score.outcomes import Outcome, TurnOutcome
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
    part = summary.overall
    values = _spread("Reward", _rewards(kept)) | _quality([turn for item in kept for turn in item.turns])
    values |= _multiturn([item for item in kept if item.turns])
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
            **_turns(part),
        }
    )
    for name in summary.by_level:
        own = [item for item in kept if ("none" if item.level is None else str(item.level)) == name]
        if begun := [item for item in own if item.turns]:
            values[f"PerLevel/{name}/CorrectRate"] = statistics.fmean(item.solved_at is not None for item in begun)
        if own:
            values[f"PerLevel/{name}/RewardMean"] = statistics.fmean(_rewards(own))
    return {f"Eval/{name}": value for name, value in values.items()}


def _spread(name: str, rewards: Sequence[float]) -> dict[str, float]:
    if not rewards:
        return {}
    return {
        f"{name}/Mean": statistics.fmean(rewards),
        f"{name}/StdDev": statistics.pstdev(rewards),
        f"{name}/Min": min(rewards),
        f"{name}/Max": max(rewards),
    }


def _quality(turns: Sequence[TurnOutcome]) -> dict[str, float]:
    """Shares of answers, whichever turn they were given in."""
    if not turns:
        return {}
    return {
        "KernelQuality/FormatRate": statistics.fmean(turn.valid for turn in turns),
        "KernelQuality/CompileRate": statistics.fmean(turn.compiled for turn in turns),
        "KernelQuality/CorrectRate": statistics.fmean(turn.correct for turn in turns),
        "KernelQuality/CheatRate": statistics.fmean(turn.status == Status.HACK.value for turn in turns),
        "multiturn/compile_rate": statistics.fmean(turn.compiled for turn in turns),
        "multiturn/correct_rate": statistics.fmean(turn.correct for turn in turns),
    }


def _multiturn(begun: Sequence[Outcome]) -> dict[str, float]:
    """Of the episodes that have an answer."""
    if not begun:
        return {}
    ends = [len(item.turns) if item.solved_at is None else item.solved_at + 1 for item in begun]
    solved = statistics.fmean(item.solved_at is not None for item in begun)
    return {
        "multiturn/success_rate": solved,
        "multiturn/avg_turns": statistics.fmean(ends),
        "multiturn/max_correct_per_trajectory": solved,
    }


def _rewards(kept: Sequence[Outcome]) -> list[float]:
    return [0.0 if item.best_answer is None else item.best_answer.reward for item in kept]


def _fast(name: str, answers: Answers) -> dict[str, Estimate]:
    return {f"{name}/{item.p:g}": item.share for item in answers.fast_p}


def _turns(part: Scope) -> dict[str, Estimate]:
    """Rates of each turn's answers; turns count from 1."""
    found = {}
    for turn in part.turns:
        found[f"multiturn/turn_{turn.turn}/compile_rate"] = turn.answers.compiled
        found[f"multiturn/turn_{turn.turn}/correct_rate"] = turn.answers.correct
    return found


def _defined(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    return {name: found.value for name, found in estimates.items() if found.value is not None}
