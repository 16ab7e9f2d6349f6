"""Rollouts to the samples that a learner is given: exact tokens, which of them are trained, and an advantage.

SFT, best-of-N and GRPO differ in these numbers alone; a learner sees no reward, no task and no turn. Whatever is
left out is counted by its reason. Tokens are never made from text here: they are those that were drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kb_ray.learn.advantage import Estimator, Pool, advantages, is_informative
from kb_ray.learn.returns import discounted_returns


@dataclass(frozen=True, slots=True)
class Sample:
    """One sequence. Its loss is over the tokens marked in `trained`, times `advantage`."""

    tokens: tuple[int, ...]
    trained: tuple[bool, ...]
    """One for each token; the first is never trained, since nothing predicts it."""
    advantage: float = 1.0
    logprobs: tuple[float, ...] | None = None
    """Of the trained tokens, in their order, as the sampler had them; None where nobody drew them."""
    task_id: str = ""
    turn: int = 0


class Drawn(NamedTuple):
    """One answer."""

    tokens: tuple[int, ...]
    """With the token that ended it, where one did."""
    logprobs: tuple[float, ...]
    """One for each token, at the temperature it was drawn at."""
    truncated: bool
    """Whether the limit ended it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a rollout: the very tokens of prompt and answer."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    score: float | None
    """None where there is none to be had, as after a failure of our own: never 0."""
    truncated: bool = False
    policy: int = 0
    """The optimizer step after which the weights were published that answered."""
    correct: bool = False
    """Whether the answer was right. A reward alone does not tell: some give a part of it to wrong ones."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The turns of one try at a task."""

    task_id: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Made:
    """Samples, and how many turns were left out for which reason."""

    samples: tuple[Sample, ...]
    left_out: Counter[str] = field(default_factory=Counter)
    groups: int = 0
    """Groups that gave samples."""


def grpo_samples(
    groups: Iterable[Sequence[Rollout]],
    *,
    gamma: float,
    estimator: Estimator,
    pool: Pool,
    policy: int = 0,
    max_staleness: int = 1,
    truncated_in_baseline: bool = True,
) -> Made:
    """One sample for each turn of each rollout of each group (the rollouts of one task).

    Left out, by reason: `infra` (all of a rollout in which any turn has no score: a return needs every later score),
    `stale` (all of a group whose oldest turn was answered more than `max_staleness` steps before `policy`),
    `uninformative` (all of a group whose returns do not differ), `truncated` (an answer that was cut off; whether its
    return stays in the baseline is a parameter).
    """
    samples, left_out, count = list[Sample](), Counter[str](), 0
    for group in groups:
        scored = [rollout for rollout in group if all(step.score is not None for step in rollout.steps)]
        left_out["infra"] += _turns(group) - _turns(scored)
        oldest = min((step.policy for rollout in scored for step in rollout.steps), default=policy)
        if policy - oldest > max_staleness:
            left_out["stale"] += _turns(scored)
            continue
        returns = [_returns(rollout, gamma, truncated_in_baseline) for rollout in scored]
        if not is_informative(returns, pool):
            left_out["uninformative"] += _turns(scored)
            continue
        count += 1
        for rollout, estimates in zip(scored, advantages(returns, estimator, pool), strict=True):
            for turn, (step, estimate) in enumerate(zip(rollout.steps, estimates, strict=True)):
                if step.truncated or estimate is None:
                    left_out["truncated"] += 1
                else:
                    samples.append(answer_sample(rollout.task_id, turn, step, estimate))
    return Made(tuple(samples), left_out, count)


def best_samples(groups: Iterable[Sequence[Rollout]], keep: int) -> Made:
    """The `keep` turns of highest score of each group, all of equal weight, for SFT on them (second document).

    Of one answer that was given several times one is kept. Only right ones count, so that a group without any teaches
    nothing: what is imitated is taken for right. Left out: `infra`, `truncated`, `duplicate`, `worse`, `failed`.
    """
    samples, left_out, count = list[Sample](), Counter[str](), 0
    for group in groups:
        taken, seen = list[tuple[str, int, Step]](), set[tuple[int, ...]]()
        turns = [(r.task_id, turn, step) for r in group for turn, step in enumerate(r.steps)]
        for task_id, turn, step in sorted(turns, key=lambda item: -(item[2].score or 0.0)):
            reason = _why_not(step, seen, len(taken) >= keep)
            if reason is None:
                seen.add(step.answer)
                taken.append((task_id, turn, step))
            else:
                left_out[reason] += 1
        count += bool(taken)
        samples += [answer_sample(task_id, turn, step, 1.0) for task_id, turn, step in taken]
    return Made(tuple(samples), left_out, count)


def answer_sample(task_id: str, turn: int, step: Step, advantage: float) -> Sample:
    """A sample of one answer; ValueError where its log-probabilities are not one for each token of it."""
    if step.logprobs is not None and len(step.logprobs) != len(step.answer):
        raise ValueError(
            f"{task_id}: {len(step.logprobs)} log-probabilities for an answer of {len(step.answer)} tokens"
        )
    return Sample(
        tokens=step.prompt + step.answer,
        trained=(False,) * len(step.prompt) + (True,) * len(step.answer),
        advantage=advantage,
        logprobs=step.logprobs,
        task_id=task_id,
        turn=turn,
    )


def _why_not(step: Step, seen: set[tuple[int, ...]], full: bool) -> str | None:
    if step.score is None:
        return "infra"
    if not step.correct:
        return "failed"
    if step.truncated:
        return "truncated"
    if step.answer in seen:
        return "duplicate"
    return "worse" if full else None


def _returns(rollout: Rollout, gamma: float, truncated_in_baseline: bool) -> list[float | None]:
    """Returns by turn; None for a turn that is to be in no baseline."""
    returns = discounted_returns([step.score or 0.0 for step in rollout.steps], gamma)
    return [
        None if step.truncated and not truncated_in_baseline else value
        for step, value in zip(rollout.steps, returns, strict=True)
    ]


def _turns(group: Sequence[Rollout]) -> int:
    return sum(len(rollout.steps) for rollout in group)
