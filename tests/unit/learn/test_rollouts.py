"""Rollouts: every try has all its turns, exact tokens go with their scores, and our own failures teach nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kb_ray.errors import InfraError
from kb_ray.learn.rollouts import Try, roll_out
from kb_ray.learn.samples import Drawn, grpo_samples
from kb_ray.records import Message, Sampling, Stage, Status, StopReason, Task, Verdict
from kb_ray.refine import Policy
from kb_ray.score.reward import RewardRule
from tests.unit.refine_pieces import TASK
from tests.unit.score.episodes import bad, ok

KERNEL = """```python
import triton

@triton.jit
def k(x):
    pass


def triton_kernel_wrapper(x):
    return x  # {}
```"""
RULE = RewardRule(scheme="kevin")


class Scripted:
    """A sampler that plays answers: text is spelled in tokens, a letter each."""

    model, policy = "scripted", 3

    def __init__(self, *turns: Sequence[str], window: int | None = None, truncated: bool = False) -> None:
        self.turns, self.window, self.truncated = list(turns), window, truncated
        self.sampling = Sampling(max_tokens=50)
        self.prompts: list[list[tuple[int, ...]]] = []

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(map(ord, "\n".join(message.content for message in messages)))

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        self.prompts.append(list(prompts))
        told = self.turns[len(self.prompts) - 1]
        tokens = [tuple(map(ord, text)) for text in told[: len(prompts)]]
        return [Drawn(t, tuple(-0.1 for _ in t), self.truncated) for t in tokens]


async def verify(task: Task, code: str) -> Verdict:
    for word, verdict in (("right", ok(2.0)), ("hack", bad(Status.HACK)), ("odd", ok(99.0, trusted=False))):
        if word in code:
            return verdict
    if "broken" in code:
        raise InfraError("the judge ended")
    return bad()


async def rolled(sampler: Scripted, group_size: int = 2, turns: int = 2) -> list[Try]:
    (group,) = await roll_out(
        [TASK], group_size, sampler, verify, opening=lambda task: (Message(role="user", content="write"),),
        policy=Policy(max_turns=turns, ends_with_success=False), rule=RULE, seed=0,
    )  # fmt: skip
    return group


async def test_each_turn_has_its_tokens_its_score_and_the_policy_that_answered() -> None:
    sampler = Scripted(
        [KERNEL.format("wrong"), KERNEL.format("right")], [KERNEL.format("right"), KERNEL.format("hack")]
    )
    first, second = await rolled(sampler)
    assert [step.score for step in first.steps] == [0.0, pytest.approx(2.3)]
    assert [step.score for step in second.steps] == [pytest.approx(2.3), 0.0]
    assert [step.prompt for step in first.steps] == [sampler.prompts[0][0], sampler.prompts[1][0]]
    assert sampler.text(first.steps[1].answer) == KERNEL.format("right")
    assert {step.policy for step in first.steps} == {3}
    assert {turn.policy_version for turn in first.state.turns} == {"scripted"}
    assert first.state.turns[1].completion.token_ids == first.steps[1].answer
    assert first.finish.stop_reason is StopReason.SUCCESS_FAST


async def test_a_success_does_not_shorten_a_try_and_is_asked_to_go_on() -> None:
    sampler = Scripted([KERNEL.format("right")] * 2, [KERNEL.format("wrong")] * 2)
    group = await rolled(sampler)
    assert [len(one.steps) for one in group] == [2, 2]
    assert "Evaluation Feedback" in sampler.text(sampler.prompts[1][0])


async def test_a_try_that_our_side_failed_is_dropped_whole() -> None:
    sampler = Scripted(
        [KERNEL.format("wrong"), KERNEL.format("right"), KERNEL.format("wrong")],
        [KERNEL.format("broken"), KERNEL.format("right"), KERNEL.format("wrong")],
    )
    group = await rolled(sampler, group_size=3)
    assert [step.score for step in group[0].steps] == [0.0, None]
    assert group[0].finish.stop_reason is StopReason.INFRA_ERROR
    made = grpo_samples([[one.rollout for one in group]], gamma=0.4, estimator="mean", pool="turn", policy=3)
    assert (made.left_out["infra"], len(made.samples)) == (2, 4)


async def test_what_may_not_be_a_reward_has_no_score() -> None:
    (one,) = await rolled(Scripted([KERNEL.format("odd")]), group_size=1, turns=1)
    assert [step.score for step in one.steps] == [None]


async def test_an_answer_without_code_is_a_turn_worth_nothing() -> None:
    (one,) = await rolled(Scripted(["I cannot."]), group_size=1, turns=1)
    assert [(step.score, one.state.turns[0].verdict.status) for step in one.steps] == [(0.0, Status.NO_CODE)]
    assert one.state.turns[0].verdict.stage is Stage.EXTRACT


async def test_a_cut_answer_is_marked() -> None:
    (one,) = await rolled(Scripted([KERNEL.format("wrong")], truncated=True), group_size=1, turns=1)
    assert one.steps[0].truncated
    assert one.state.turns[0].completion.finish_reason == "length"


async def test_what_does_not_fit_the_window_ends_without_a_step() -> None:
    (one,) = await rolled(Scripted([], window=40), group_size=1, turns=1)
    assert (one.steps, one.finish.stop_reason) == ([], StopReason.CONTEXT)
    assert one.rollout.steps == ()


async def test_equal_code_for_a_task_is_judged_once_and_a_failure_of_ours_again() -> None:
    asked: list[str] = []

    async def counted(task: Task, code: str) -> Verdict:
        asked.append(code)
        await asyncio.sleep(0)
        if "broken" in code and len(asked) == 1:
            raise InfraError("the judge ended")
        return ok(2.0)

    async def tried(*turns: Sequence[str], group_size: int) -> list[Try]:
        asked.clear()
        groups = await roll_out(
            [TASK], group_size, Scripted(*turns), counted,
            opening=lambda task: (Message(role="user", content="write"),),
            policy=Policy(max_turns=len(turns), ends_with_success=False), rule=RULE, seed=0,
        )  # fmt: skip
        return groups[0]

    same, other = KERNEL.format("same"), KERNEL.format("other")
    group = await tried([same, same, other], [same, other, same], group_size=3)
    assert len(asked) == 2
    assert [[step.score for step in one.steps] for one in group] == [[pytest.approx(2.3)] * 2] * 3
    broken = KERNEL.format("broken")
    failed, passed = (await tried([broken], group_size=1))[0], (await tried([same], [broken], group_size=1))[0]
    assert failed.steps[0].score is None
    assert [step.score for step in passed.steps] == [pytest.approx(2.3)] * 2
