"""What one step of training was, as the names and numbers of the third document's tables. Pure.

A trajectory is one try; its reward is the best score of its turns. Rates of kernel quality are over answers. Turns
count from 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from kb_ray.learn.rollouts import Try
from kb_ray.learn.samples import Made
from kb_ray.records import Status, Turn, Verdict

Groups = Sequence[Sequence[Try]]


def of_rollouts(groups: Groups, per_level: bool = True) -> dict[str, float]:
    """Rewards, kernel quality, turns. What nothing was seen of is left out."""
    tries = [one for group in groups for one in group]
    found = _rewards("Reward", tries) | _quality([turn.verdict for one in tries for turn in one.state.turns])
    found |= _multiturn(tries)
    for level in (
        sorted({one.state.task.level for one in tries if one.state.task.level is not None}) if per_level else ()
    ):
        own = [one for one in tries if one.state.task.level == level]
        rewards = _rewards(f"PerLevel/{level}/Reward", own)
        found |= {name.replace("/Mean", "Mean"): value for name, value in rewards.items() if name.endswith("/Mean")}
        found[f"PerLevel/{level}/CorrectRate"] = share([one for one in own if one.steps], _solved)
    return found


def of_samples(made: Made) -> dict[str, float]:
    """What was learned from and what was left out, by reason, in turns."""
    return {
        "Samples/Kept": float(len(made.samples)),
        "Samples/Groups": float(made.groups),
        **{f"Samples/LeftOut/{reason}": float(count) for reason, count in sorted(made.left_out.items())},
    }


def timing(groups: Groups) -> dict[str, float]:
    """Seconds of a batch's rollouts for drawing and for verdicts: turns follow each other, and last as long as their
    slowest."""
    by_turn: dict[int, list[Turn]] = {}
    for turn in (turn for group in groups for one in group for turn in one.state.turns):
        by_turn.setdefault(turn.index, []).append(turn)
    return {
        "Timing/Draw": sum(max(turn.times.model_s for turn in turns) for turns in by_turn.values()),
        "Timing/Verify": sum(max(turn.times.bench_s for turn in turns) for turns in by_turn.values()),
    }


def histograms(groups: Groups, made: Made) -> dict[str, list[float]]:
    """Values whose distribution is shown; empty ones are left out."""
    tries = [one for group in groups for one in group]
    verdicts = [turn.verdict for one in tries for turn in one.state.turns]
    found = {
        "Distributions/Rewards": trajectory_rewards(tries),
        "Distributions/Speedups": [v.speedup for v in verdicts if v.correct and v.trusted and v.speedup is not None],
        "Distributions/Advantages": [sample.advantage for sample in made.samples],
    }
    return {name: values for name, values in found.items() if values}


def trajectory_rewards(tries: Sequence[Try]) -> list[float]:
    """The best score of each try that has any."""
    scores = [[step.score for step in one.steps if step.score is not None] for one in tries]
    return [max(values) for values in scores if values]


def accuracy_by_level(groups: Groups) -> dict[int, float]:
    """Share of tries that solved their task, by level; tries that our side failed do not count."""
    found: dict[int, list[Try]] = {}
    for one in (one for group in groups for one in group):
        if one.state.task.level is not None and _counts(one):
            found.setdefault(one.state.task.level, []).append(one)
    return {level: share(tries, _solved) for level, tries in found.items()}


def solved_share(group: Sequence[Try]) -> float | None:
    """Share of a group that solved its task; None where none counts."""
    counted = [one for one in group if _counts(one)]
    return share(counted, _solved) if counted else None


def share(tries: Sequence[Try], test: object) -> float:
    """Share of tries for which `test` holds; 0 of none."""
    assert callable(test)
    return sum(bool(test(one)) for one in tries) / len(tries) if tries else 0.0


def _counts(one: Try) -> bool:
    return bool(one.steps) and all(step.score is not None for step in one.steps)


def _solved(one: Try) -> bool:
    return any(turn.verdict.correct for turn in one.state.turns)


def _rewards(name: str, tries: Sequence[Try]) -> dict[str, float]:
    rewards = trajectory_rewards(tries)
    if not rewards:
        return {}
    return {
        f"{name}/Mean": statistics.fmean(rewards),
        f"{name}/StdDev": statistics.pstdev(rewards),
        f"{name}/Min": min(rewards),
        f"{name}/Max": max(rewards),
    }


def _quality(verdicts: Sequence[Verdict]) -> dict[str, float]:
    if not verdicts:
        return {}
    tests: Mapping[str, Sequence[bool]] = {
        "FormatRate": [v.valid for v in verdicts],
        "CompileRate": [v.compiled for v in verdicts],
        "CorrectRate": [v.correct for v in verdicts],
        "CheatRate": [v.status is Status.HACK for v in verdicts],
    }
    return {f"KernelQuality/{name}": statistics.fmean(values) for name, values in tests.items()}


def _multiturn(tries: Sequence[Try]) -> dict[str, float]:
    """The third document's multi-turn metrics, of tries that have a turn."""
    begun = [one.state.turns for one in tries if one.state.turns]
    if not begun:
        return {}
    first = [next((turn.index + 1 for turn in turns if turn.verdict.correct), len(turns)) for turns in begun]
    verdicts = [turn.verdict for turns in begun for turn in turns]
    solved = [any(turn.verdict.correct for turn in turns) for turns in begun]
    found = {
        "multiturn/success_rate": statistics.fmean(solved),
        "multiturn/avg_turns": statistics.fmean(first),
        "multiturn/compile_rate": statistics.fmean(v.compiled for v in verdicts),
        "multiturn/correct_rate": statistics.fmean(v.correct for v in verdicts),
        "multiturn/max_correct_per_trajectory": statistics.fmean(
            max(1.0 if t.verdict.correct else _passed(t.verdict) for t in turns) for turns in begun
        ),
    }
    for number in range(1, max(map(len, begun)) + 1):
        own = [turns[number - 1].verdict for turns in begun if len(turns) >= number]
        found[f"multiturn/turn_{number}/compile_rate"] = statistics.fmean(v.compiled for v in own)
        found[f"multiturn/turn_{number}/correct_rate"] = statistics.fmean(v.correct for v in own)
    return found


def _passed(verdict: Verdict) -> float:
    return verdict.tests_passed / verdict.tests_total if verdict.tests_total else 0.0
