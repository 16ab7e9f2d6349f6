"""The loop learns what pays, learns nothing from advantages that are not its own, and goes on where it was."""

from __future__ import annotations

import copy
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from kb_ray.errors import InfraError
from kb_ray.learn.chat import ChatTokens
from kb_ray.learn.curriculum import TaskHistory
from kb_ray.learn.generating import Drawing, draw
from kb_ray.learn.grpo import Grpo, GrpoRule, Progress, Shape
from kb_ray.learn.in_process import InProcessSampler
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import Objective
from kb_ray.learn.samples import Drawn, Sample
from kb_ray.learn.stepping import NotFinite, StepReport
from kb_ray.records import Message, Sampling, Task, Verdict
from kb_ray.score.reward import RewardRule
from tests.unit.learn import tiny
from tests.unit.refine_pieces import TASK
from tests.unit.score.episodes import bad, ok

TOKENS = 4
TASKS = [TASK.model_copy(update={"task_id": f"toy/{i}", "level": 1 + i % 2}) for i in range(4)]
RULE = GrpoRule(batch_size=4, group_size=16, reward=RewardRule(scheme="kevin"))
OBJECTIVE = Objective(kind="policy", averaging="constant", length=TOKENS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


async def judge(task: Task, code: str) -> Verdict:
    """One of 34 tokens is a right kernel."""
    return ok(1.0) if "good" in code else bad()


def opening(task: Task) -> tuple[Message, ...]:
    return (Message(role="user", content=f"w{task.task_id[-1]}"),)


def loop(model: Path, rule: GrpoRule = RULE, shape: Shape | None = None, progress: Progress | None = None) -> Grpo:
    learner = tiny.learner(model, learning_rate=2e-2)
    return started(learner, rule, shape, progress)


def started(learner: Learner, rule: GrpoRule, shape: Shape | None, progress: Progress | None) -> Grpo:
    sampler = InProcessSampler(learner, "toy", Sampling(temperature=1.0, max_tokens=TOKENS), 4096)
    return Grpo(rule, TASKS, learner, sampler, judge, OBJECTIVE, opening, progress, shape)


async def rewards(grpo: Grpo, batches: int) -> list[float]:
    return [(await grpo.advance()).metrics["Reward/Mean"] for _ in range(batches)]


def shuffled(samples: list[Sample]) -> list[Sample]:
    """Each sample with the advantage of another."""
    from dataclasses import replace

    order = [sample.advantage for sample in samples]
    random.Random(0).shuffle(order)
    return [replace(sample, advantage=advantage) for sample, advantage in zip(samples, order, strict=True)]


async def test_reward_rises_and_with_shuffled_advantages_it_does_not(model: Path) -> None:
    learned, blind = await rewards(loop(model), 30), await rewards(loop(model, shape=shuffled), 30)
    before = statistics.fmean(learned[:5])
    assert statistics.fmean(learned[-5:]) > before + 0.5
    assert statistics.fmean(blind[-5:]) < before + 0.25


async def test_every_turn_of_every_try_is_learned_from(model: Path) -> None:
    batch = await loop(model, RULE.model_copy(update={"max_turns": 3})).advance()
    assert all(len(one.steps) == 3 for group in batch.groups for one in group)
    assert len(batch.made.samples) + sum(batch.made.left_out.values()) == 4 * 16 * 3
    assert "multiturn/turn_3/correct_rate" in batch.metrics


async def test_best_of_n_learns_what_it_kept(model: Path) -> None:
    learner, rule = tiny.learner(model, learning_rate=2e-2), RULE.model_copy(update={"keep": 3})
    # An answer must end to be kept.
    sampler = InProcessSampler(learner, "toy", Sampling(temperature=1.0, max_tokens=8), 4096)
    objective = Objective(kind="likelihood", averaging="token")
    grpo = Grpo(rule, TASKS, learner, sampler, judge, objective, opening)
    told = await rewards(grpo, 20)
    assert statistics.fmean(told[-3:]) > statistics.fmean(told[:3]) + 0.4
    batch = await grpo.advance()
    assert {sample.advantage for sample in batch.made.samples} == {1.0}
    assert len(batch.made.samples) <= 3 * RULE.batch_size


async def test_what_a_batch_was_is_told_under_the_third_documents_names(model: Path) -> None:
    grpo = loop(model)
    told: dict[str, float] = {}
    while "Train/loss" not in told:
        told = (await grpo.advance()).metrics
    assert {
        "Reward/Mean", "Reward/StdDev", "Reward/Min", "Reward/Max", "KernelQuality/FormatRate",
        "KernelQuality/CompileRate", "KernelQuality/CorrectRate", "KernelQuality/CheatRate", "PerLevel/1/RewardMean",
        "PerLevel/2/CorrectRate", "multiturn/success_rate", "multiturn/avg_turns", "multiturn/turn_1/compile_rate",
        "multiturn/max_correct_per_trajectory", "Timing/Rollout", "Timing/Train", "Timing/Draw",
        "Timing/Verify", "Train/learning_rate",
    } <= set(told)  # fmt: skip
    assert told["KernelQuality/CorrectRate"] <= told["KernelQuality/CompileRate"] <= told["KernelQuality/FormatRate"]
    assert 0 < told["Timing/Draw"] + told["Timing/Verify"] <= told["Timing/Rollout"]


class Published:
    """A policy as it was at a step, drawn from while the learner goes on."""

    def __init__(self, learner: Learner) -> None:
        self._network = copy.deepcopy(learner.network)
        self._chat = ChatTokens(learner.tokenizer)
        self.policy, self.model, self.window = learner.steps, f"toy-step{learner.steps}", 4096
        self.sampling = Sampling(temperature=1.0, max_tokens=TOKENS)
        self.text = self._chat.text

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self._chat.prompt([{"role": m.role, "content": m.content} for m in messages])

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        return draw(self._network, prompts, Drawing(1.0, TOKENS), self._chat.end, seed % (1 << 31))


def ahead(model: Path, rule: GrpoRule) -> tuple[Grpo, list[int]]:
    """A loop that publishes, and the steps that it published."""
    learner, published = tiny.learner(model, learning_rate=2e-2), [0]

    async def newest() -> Published:
        published.append(learner.steps)
        return Published(learner)

    return Grpo(rule, TASKS, learner, Published(learner), judge, OBJECTIVE, opening, newest=newest), published


async def test_the_next_batch_is_drawn_from_the_policy_before_the_step(model: Path) -> None:
    grpo, published = ahead(model, RULE)
    before, drawn = [], []
    for n in range(24):
        before.append(published[-1])
        batch = await grpo.advance(last=n == 23)
        drawn += [{step.policy for group in batch.groups for one in group for step in one.steps}]
        assert not batch.made.left_out["stale"]
    assert drawn == [{0}, *({step} for step in before[:-1])]
    assert published == list(range(published[-1] + 1))
    assert before[-1] > 2, "steps were taken while the next batch was drawn"


async def test_what_is_older_than_allowed_is_not_learned_from(model: Path) -> None:
    grpo, _ = ahead(model, RULE.model_copy(update={"max_staleness": 0}))
    batches = [await grpo.advance() for _ in range(12)]
    await grpo.aclose()
    after = [batches[n + 1] for n in range(11) if batches[n].made.samples]
    assert after, "some batch was learned from"
    assert all((batch.made.samples, batch.made.left_out["stale"]) == ((), 64) for batch in after)


async def test_a_batch_that_tells_nothing_takes_no_step(model: Path) -> None:
    async def never(task: Task, code: str) -> Verdict:
        return bad()

    learner = tiny.learner(model)
    sampler = InProcessSampler(learner, "toy", Sampling(max_tokens=TOKENS), 4096)
    batch = await Grpo(RULE, TASKS, learner, sampler, never, OBJECTIVE, opening).advance()
    assert learner.steps == 0
    assert batch.made.left_out["uninformative"] == 64
    assert "Train/loss" not in batch.metrics


class Good(InProcessSampler):
    """Every answer is a right kernel."""

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        return [Drawn((tiny.WORDS.index(tiny.GOOD), 2), (-0.5, -0.5), False) for _ in prompts]


async def test_a_batch_of_which_nothing_was_judged_moves_no_stage(model: Path) -> None:
    async def away(task: Task, code: str) -> Verdict:
        raise InfraError("no judge can be reached")

    learner, rule = tiny.learner(model), RULE.model_copy(update={"reward_stages": True})
    sampler = Good(learner, "toy", Sampling(max_tokens=TOKENS), 4096)
    judged = Grpo(rule, TASKS, learner, sampler, judge, OBJECTIVE, opening)
    await judged.advance()
    assert judged.progress.stages.recent == (1.0,)
    unjudged = Grpo(rule, TASKS, learner, sampler, away, OBJECTIVE, opening, judged.progress)
    await unjudged.advance()
    assert unjudged.progress.batch == 2
    assert unjudged.progress.stages == judged.progress.stages


async def test_what_was_tried_is_told_before_a_step_that_fails(model: Path) -> None:
    class Broken:
        steps = 0

        def epoch(self, samples: Sequence[Sample], objective: Objective, parts: int) -> list[StepReport]:
            raise NotFinite("no number")

    told = list[tuple[int, int]]()
    sampler = InProcessSampler(tiny.learner(model), "toy", Sampling(max_tokens=TOKENS), 4096)
    grpo = Grpo(
        RULE, TASKS, Broken(), sampler, judge, OBJECTIVE, opening,
        tried=lambda number, groups: told.append((number, sum(map(len, groups)))),
    )  # fmt: skip
    with pytest.raises(NotFinite):
        await rewards(grpo, 8)
    assert told == [(n, 64) for n in range(grpo.progress.batch + 1)]


async def test_a_loop_goes_on_where_another_was(model: Path) -> None:
    rule = RULE.model_copy(update={"curriculum": True})
    plain = loop(model, rule)
    for _ in range(3):
        await plain.advance()
    kept = Progress.model_validate_json(plain.progress.model_dump_json())
    later = [task.task_id for task in plain._chosen(3)]
    other = loop(model, rule, progress=kept)
    assert [task.task_id for task in other._chosen(3)] == later
    assert other.progress == plain.progress


def test_settled_tasks_are_not_drawn(model: Path) -> None:
    history = TaskHistory(solved={"toy/0": (1.0, 1.0), "toy/1": (0.0, 0.0)})
    grpo = loop(model, RULE.model_copy(update={"curriculum": True, "batch_size": 9}))
    grpo.progress = grpo.progress.model_copy(update={"history": history})
    assert {task.task_id for task in grpo._chosen(0)} == {"toy/2", "toy/3"}
