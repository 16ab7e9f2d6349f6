"""Multi-turn GRPO, and best-of-N: tries at a batch of tasks, what each was worth beside the others, a step; again.

Wires rollouts, samples and a learner, and keeps the curriculum. What is minimised, how rewards come about and where
things are kept is given. Knows no file, no Ray and no model format.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kb_ray.learn import metrics
from kb_ray.learn.advantage import Estimator, Pool
from kb_ray.learn.curriculum import LevelMix, LevelRule, RewardStages, TaskHistory
from kb_ray.learn.objective import Objective
from kb_ray.learn.rollouts import Sampler, Try, Verify, roll_out
from kb_ray.learn.samples import Made, Sample, best_samples, grpo_samples
from kb_ray.records import Message, Record, Task
from kb_ray.refine import Policy
from kb_ray.score.reward import PRESETS, RewardRule


class GrpoRule(Record):
    """How a step is made. Defaults: the third document's."""

    batch_size: int = 4
    """Tasks a step."""
    group_size: int = 4
    """Tries at each."""
    max_turns: int = 1
    keep: int | None = None
    """Best-of-N: learn so many of the best answers to each task, all alike. None: GRPO, by advantages."""
    gamma: float = 0.4
    estimator: Estimator = "mean"
    pool: Pool = "turn"
    parts: int = 1
    """Optimizer steps over the samples of one batch."""
    max_staleness: int = 1
    reward: RewardRule = RewardRule()
    reward_stages: bool = False
    """The weighted reward's presets one after the other, in place of the weights given."""
    curriculum: bool = False
    """Levels by their success, and no task that is always or never solved."""
    levels: LevelRule = LevelRule()
    target_speedup: float = 1.0
    n_correctness: int = 5
    """Input sets of a verification, as feedback tells them."""
    seed: int = 0


class Progress(Record):
    """What a run must know to go on where it was, beside weights and optimizer."""

    batch: int = 0
    mix: LevelMix
    stages: RewardStages = RewardStages()
    history: TaskHistory = TaskHistory()


class Learns(Protocol):
    """What takes steps: `learner.Learner`."""

    steps: int

    def epoch(self, samples: Sequence[Sample], objective: Objective, parts: int) -> Sequence[Any]: ...


class Batch(NamedTuple):
    """One batch, over."""

    groups: list[list[Try]]
    made: Made
    metrics: dict[str, float]


Shape = Callable[[list[Sample]], list[Sample]]
Tried = Callable[[int, list[list[Try]]], None]
"""Is told of each batch, by its number from 0, what was tried, before anything is learned from it."""
Newest = Callable[[], Awaitable[Sampler]]
"""Publishes the policy as it is now; what draws from it."""


class Grpo:
    """The loop. `advance` takes one batch; whoever calls it writes down what came of it."""

    def __init__(
        self,
        rule: GrpoRule,
        tasks: Sequence[Task],
        learner: Learns,
        sampler: Sampler,
        verify: Verify,
        objective: Objective,
        opening: Callable[[Task], tuple[Message, ...]],
        progress: Progress | None = None,
        shape: Shape | None = None,
        newest: Newest | None = None,
        tried: Tried = lambda number, groups: None,
    ) -> None:
        """`shape` may change samples before they are learned from, as a test does that shuffles their advantages.

        `newest`: for samplers that draw while the learner takes a step. The next batch is then begun before the step,
        so that its answers are of the policy before it, and steps are taken in a thread. `sampler` is the first.
        """
        self.rule, self.tasks, self.objective = rule, tuple(tasks), objective
        self.progress = progress or Progress(mix=LevelMix.first(rule.levels))
        self._learner, self._sampler, self._verify, self._opening = learner, sampler, verify, opening
        self._shape, self._newest, self._tell = shape, newest, tried
        self._ahead: asyncio.Task[list[list[Try]]] | None = None

    async def advance(self, last: bool = False) -> Batch:
        """Try, compare, learn. Where nothing could be compared no step is taken. `last`: no batch is to follow."""
        began = time.monotonic()
        tried, self._ahead = self._ahead or self._begun(self.progress.batch), None
        groups = await tried
        rolled = time.monotonic()
        # A step that fails must not take what was tried with it.
        self._tell(self.progress.batch, groups)
        if self._newest is not None and not last:
            self._ahead = self._begun(self.progress.batch + 1)
        made = self._made(groups)
        samples = self._shape(list(made.samples)) if self._shape else list(made.samples)
        reports = await self._learned(samples) if samples else []
        ended = time.monotonic()
        told = metrics.of_rollouts(groups) | metrics.of_window(groups) | metrics.of_samples(made)
        told |= self._observed(groups)
        for report in reports:
            told |= {f"Train/{name}": float(value) for name, value in report._asdict().items()}
        told |= metrics.timing(groups)
        told |= {"Timing/Rollout": rolled - began, "Timing/Train": ended - rolled, "Timing/Total": ended - began}
        return Batch(groups, made, told)

    async def aclose(self) -> None:
        """Gives up what was begun ahead."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def _learned(self, samples: Sequence[Sample]) -> Sequence[Any]:
        if self._newest is None:
            return self._learner.epoch(samples, self.objective, self.rule.parts)
        reports = await asyncio.to_thread(self._learner.epoch, samples, self.objective, self.rule.parts)
        self._sampler = await self._newest()
        return reports

    def _made(self, groups: Sequence[Sequence[Try]]) -> Made:
        rule, rollouts = self.rule, [[one.rollout for one in group] for group in groups]
        if rule.keep is not None:
            return best_samples(rollouts, rule.keep)
        return grpo_samples(
            rollouts, gamma=rule.gamma, estimator=rule.estimator, pool=rule.pool, policy=self._learner.steps,
            max_staleness=rule.max_staleness,
        )  # fmt: skip

    def _begun(self, batch: int) -> asyncio.Task[list[list[Try]]]:
        return asyncio.create_task(self._tried(self._chosen(batch), batch))

    def _chosen(self, batch: int) -> list[Task]:
        """The tasks of a batch: each once while there are enough. Without a curriculum, seed and batch decide alone."""
        draw = random.Random(f"{self.rule.seed}/{batch}")
        if not self.rule.curriculum:
            count = min(self.rule.batch_size, len(self.tasks))
            return draw.sample(self.tasks, count)
        worth = set(self.progress.history.worth_drawing([task.task_id for task in self.tasks]))
        left = [task for task in self.tasks if task.task_id in worth]
        chosen: list[Task] = []
        while left and len(chosen) < self.rule.batch_size:
            level = self.progress.mix.draw({task.level or 1 for task in left}, draw)
            task = draw.choice([task for task in left if (task.level or 1) == level])
            left.remove(task)
            chosen.append(task)
        return chosen

    async def _tried(self, tasks: Sequence[Task], batch: int) -> list[list[Try]]:
        rule = self.rule
        return await roll_out(
            tasks, rule.group_size, self._sampler, self._verify,
            opening=self._opening,
            policy=Policy(
                max_turns=rule.max_turns, target_speedup=rule.target_speedup, ends_with_success=False,
                n_correctness=rule.n_correctness,
            ),
            rule=self._reward(),
            seed=rule.seed + 1_000_003 * batch,
        )  # fmt: skip

    def _reward(self) -> RewardRule:
        if not self.rule.reward_stages:
            return self.rule.reward
        weights = PRESETS[self.progress.stages.stage]
        return self.rule.reward.model_copy(update={"scheme": "weighted", "weights": weights})

    def _observed(self, groups: Sequence[Sequence[Try]]) -> dict[str, float]:
        """Move the curriculum on by what was seen; what it says now."""
        told = metrics.of_rollouts(groups, per_level=False)
        history = self.progress.history
        for group in groups:
            solved = metrics.solved_share(group)
            if solved is not None:
                history = history.observed(group[0].state.task.task_id, solved)
        stages = self.progress.stages
        if "KernelQuality/CompileRate" in told:
            stages = stages.observed(told["KernelQuality/CompileRate"], told["KernelQuality/CorrectRate"])
        mix = self.progress.mix.observed(metrics.accuracy_by_level(groups), self.rule.levels)
        self.progress = Progress(batch=self.progress.batch + 1, mix=mix, stages=stages, history=history)
        return {f"Curriculum/Level{level}": value for level, value in mix.shares().items()} | {
            "Curriculum/RewardStage": float(stages.stage[-1])
        }
