"""What one step of training was, under the names of the third document's tables. Pure.

A trajectory is one try; its reward is the best score of its turns. What rates are over stands in `score.logged`. Tries
that our own side failed are in none of them, as in an evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb_ray.learn.rollouts import Try
from kb_ray.learn.samples import Made
from kb_ray.records import REDONE_ON_RESUME, Status, StopReason, Turn, Verdict
from kb_ray.score.logged import Answer, multiturn, quality, spread

Groups = Sequence[Sequence[Try]]


def of_rollouts(groups: Groups, per_level: bool = True) -> dict[str, float]:
    """Rewards, kernel quality, turns. What nothing was seen of is left out."""
    tries = _judged(groups)
    answers = [[_answer(turn.verdict) for turn in one.state.turns] for one in tries]
    found = spread("Reward", trajectory_rewards(tries)) | quality([answer for own in answers for answer in own])
    found |= multiturn(answers)
    for level in (
        sorted({one.state.task.level for one in tries if one.state.task.level is not None}) if per_level else ()
    ):
        own = [one for one in tries if one.state.task.level == level]
        rewards = spread(f"PerLevel/{level}/Reward", trajectory_rewards(own))
        found |= {name.replace("/Mean", "Mean"): value for name, value in rewards.items() if name.endswith("/Mean")}
        if begun := [one for one in own if one.steps]:
            found[f"PerLevel/{level}/CorrectRate"] = share(begun, _solved)
    return found


def of_window(groups: Groups) -> dict[str, float]:
    """How many tries the model's window ended before their last turn, or before their first."""
    ended = sum(one.finish.stop_reason is StopReason.CONTEXT for group in groups for one in group)
    return {"Rollouts/EndedByWindow": float(ended)}


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
    tries = _judged(groups)
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


def _judged(groups: Groups) -> list[Try]:
    return [one for group in groups for one in group if one.finish.stop_reason not in REDONE_ON_RESUME]


def _counts(one: Try) -> bool:
    return bool(one.steps) and all(step.score is not None for step in one.steps)


def _solved(one: Try) -> bool:
    return any(turn.verdict.correct for turn in one.state.turns)


def _answer(verdict: Verdict) -> Answer:
    passed = verdict.tests_passed / verdict.tests_total if verdict.tests_total else 0.0
    return Answer(verdict.valid, verdict.compiled, verdict.correct, verdict.status is Status.HACK, passed)
