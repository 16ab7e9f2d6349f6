"""Several tries at each of several tasks, turn by turn, for learning: exact tokens, verdicts and scores.

The answers of a turn are drawn together, and judged together. What follows an answer or a verdict is `refine`'s to
say; who draws and who judges are given. Knows no model, no pool and no optimizer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kb_ray.errors import InfraError
from kb_ray.extract import split_reasoning
from kb_ray.learn.samples import Drawn, Rollout, Step
from kb_ray.records import Completion, Message, Sampling, Task, Usage, Verdict
from kb_ray.refine import (
    Action,
    Answered,
    Ask,
    ContextExhausted,
    Evaluate,
    Event,
    Finish,
    InfraFailed,
    Judged,
    Policy,
    State,
    requests,
    start,
    step,
)
from kb_ray.score.reward import RewardRule, reward


class Sampler(Protocol):
    """What draws answers of the policy."""

    window: int | None
    """Tokens of prompt and answer that fit together; None: unbounded."""
    sampling: Sampling

    @property
    def model(self) -> str:
        """Name of the policy, version included."""
        ...

    @property
    def policy(self) -> int:
        """The optimizer step after which its weights were taken."""
        ...

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of a conversation up to where an answer begins."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """What an answer's tokens say, without those that only end it."""
        ...

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        """One answer to each prompt, in their order."""
        ...


Verify = Callable[[Task, str], Awaitable[Verdict]]
"""The verdict on a candidate; InfraError where none can be reached."""


@dataclass
class Try:
    """One try at a task, under way or over."""

    state: State
    action: Action
    sample: int
    steps: list[Step] = field(default_factory=list)

    @property
    def finish(self) -> Finish:
        """How it ended; it must have."""
        assert isinstance(self.action, Finish), "this try is not over"
        return self.action

    @property
    def rollout(self) -> Rollout:
        """What is learned from it."""
        return Rollout(self.state.task.task_id, tuple(self.steps))

    def goes_on(self, event: Event) -> None:
        """Take in what happened."""
        self.state, self.action = step(self.state, event)


async def roll_out(
    tasks: Sequence[Task],
    group_size: int,
    sampler: Sampler,
    verify: Verify,
    *,
    opening: Callable[[Task], tuple[Message, ...]],
    policy: Policy,
    rule: RewardRule,
    seed: int,
) -> list[list[Try]]:
    """`group_size` tries at each task, all over; one group a task, in their order.

    A try that our own side failed, or that no longer fits the window, ends early; the first with a step that has no
    score, so that nothing is learned from it. Equal code for one task is judged once.
    """
    verify = _each_once(verify)
    groups = [[_begun(task, opening(task), policy, n) for n in range(group_size)] for task in tasks]
    tries = [one for group in groups for one in group]
    for turn in range(policy.max_turns):
        asked = _fitting([one for one in tries if isinstance(one.action, Ask)], sampler)
        if not asked:
            break
        began = time.monotonic()
        answers = await sampler.draw([prompt for _, prompt, _ in asked], seed + turn)
        seconds = time.monotonic() - began
        for (one, prompt, sent), drawn in zip(asked, answers, strict=True):
            one.goes_on(_answered(sampler, sent, prompt, drawn, seconds))
        await asyncio.gather(*[_judge(one, verify) for one, _, _ in asked if isinstance(one.action, Evaluate)])
        for (one, prompt, _), drawn in zip(asked, answers, strict=True):
            score, correct = _worth(one, turn, rule)
            one.steps.append(
                Step(prompt, drawn.tokens, drawn.logprobs, score, drawn.truncated, sampler.policy, correct)
            )
    return groups


def fits(tokens: int, sampler: Sampler) -> bool:
    """Whether a prompt of so many tokens leaves room for an answer."""
    return sampler.window is None or tokens + sampler.sampling.max_tokens <= sampler.window


def _each_once(verify: Verify) -> Verify:
    """`verify` that shares the verdict of code that was asked for before, but not a failure to reach one."""
    asked: dict[tuple[str, str], asyncio.Task[Verdict]] = {}

    async def verify_once(task: Task, code: str) -> Verdict:
        key = task.task_id, code
        if key not in asked:
            asked[key] = asyncio.ensure_future(verify(task, code))
        try:
            return await asked[key]
        except InfraError:
            asked.pop(key, None)
            raise

    return verify_once


def _begun(task: Task, opening: tuple[Message, ...], policy: Policy, sample: int) -> Try:
    state, action = start(task, opening, policy)
    return Try(state, action, sample)


def _fitting(tries: Sequence[Try], sampler: Sampler) -> list[tuple[Try, tuple[int, ...], tuple[Message, ...]]]:
    """(try, tokens, messages) of those whose conversation fits, shortened where it must be; the others end."""
    found = []
    for one in tries:
        for messages in requests(one.state):
            prompt = sampler.prompt(messages)
            if fits(len(prompt), sampler):
                found.append((one, prompt, messages))
                break
        else:
            one.goes_on(
                ContextExhausted(message=f"{len(prompt)} tokens at the shortest, the window is {sampler.window}")
            )
    return found


def _answered(
    sampler: Sampler, sent: tuple[Message, ...], prompt: tuple[int, ...], drawn: Drawn, seconds: float
) -> Answered:
    answer, thought = split_reasoning(sampler.text(drawn.tokens), cut=drawn.truncated)
    completion = Completion(
        text=answer,
        reasoning=thought,
        finish_reason="length" if drawn.truncated else "stop",
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(drawn.tokens)),
        latency_s=seconds,
        model=sampler.model,
        sampling=sampler.sampling,
        token_ids=drawn.tokens,
        logprobs=drawn.logprobs,
    )
    return Answered(completion=completion, sent=sent, model_s=seconds, policy_version=sampler.model)


async def _judge(one: Try, verify: Verify) -> None:
    assert isinstance(one.action, Evaluate)
    began = time.monotonic()
    try:
        verdict = await verify(one.state.task, one.action.code)
    except InfraError as error:
        one.goes_on(InfraFailed(message=str(error)))
    else:
        one.goes_on(Judged(verdict=verdict, bench_s=time.monotonic() - began))


def _worth(one: Try, turn: int, rule: RewardRule) -> tuple[float | None, bool]:
    """(reward, right) of the turn just judged; no reward where there is no verdict, or one that may not be one."""
    if turn >= len(one.state.turns):
        return None, False
    verdict = one.state.turns[turn].verdict
    return reward(verdict, rule, flagged=bool(one.state.task.flags)), verdict.correct
