"""Which levels are drawn, what is paid for, and which tasks are left alone, by what was reached so far.

States are records that go into checkpoints; each step makes a new one. Knows rates and names, no model and no task's
code.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field

from kb_ray.records import Record

HARDEST = 3


class LevelRule(Record):
    """The second document's schedule: harder levels come in while the level below goes well."""

    start_p: float = 0.1
    end_p: float = 0.5
    step: float = 0.05
    threshold: float = 0.4
    window: int = 5
    """Accuracies whose mean is compared with the threshold."""


class LevelMix(Record):
    """How often each level is drawn, and the accuracies that decide about it."""

    p2: float
    """Share of level 2 in what is not of level 3."""
    p3: float = 0.0
    """Share of level 3; 0 until level 2 has all of its share."""
    recent: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """The last accuracies of levels 1 and 2, oldest first."""

    @classmethod
    def first(cls, rule: LevelRule) -> LevelMix:
        """Where training begins."""
        return cls(p2=rule.start_p)

    def shares(self) -> dict[int, float]:
        """Chance of each level; they add up to 1."""
        return {1: (1 - self.p3) * (1 - self.p2), 2: (1 - self.p3) * self.p2, 3: self.p3}

    def observed(self, accuracy: Mapping[int, float], rule: LevelRule) -> LevelMix:
        """After a batch in which these levels had these shares of correct answers.

        Level 2's share grows by `step` while the mean of level 1's last `window` accuracies is at least `threshold`,
        up to `end_p`; then level 3's by the same rule from level 2's. Fewer than `window` accuracies decide nothing.
        """
        recent = dict(self.recent)
        for level in (1, 2):
            if level in accuracy:
                recent[str(level)] = (*recent.get(str(level), ()), accuracy[level])[-rule.window :]
        p2, p3 = self.p2, self.p3
        if p2 < rule.end_p:
            if 1 in accuracy and _goes_well(recent.get("1", ()), rule):
                p2 = round(min(rule.end_p, p2 + rule.step), 6)
        elif 2 in accuracy and _goes_well(recent.get("2", ()), rule):
            p3 = round(min(rule.end_p, p3 + rule.step if p3 else rule.start_p), 6)
        return LevelMix(p2=p2, p3=p3, recent=recent)

    def draw(self, available: Collection[int], random_: random.Random) -> int:
        """A level of those available, by its share; equal chances where none of them has one. ValueError if none."""
        levels = sorted(available)
        if not levels:
            raise ValueError("no level has a task left")
        shares = self.shares()
        weights = [shares.get(level, 0.0) for level in levels]
        return random_.choices(levels, weights if sum(weights) > 0 else None)[0]


RewardStage = Literal["stage1", "stage2", "stage3"]
_NEXT: dict[RewardStage, RewardStage] = {"stage1": "stage2", "stage2": "stage3"}


class RewardStages(Record):
    """The third document's presets one after the other: format and compile, then correctness, then speed."""

    stage: RewardStage = "stage1"
    recent: tuple[float, ...] = ()
    """The last rates of what decides about this stage: compiling in the first, being right in the second."""

    def observed(self, compiled: float, correct: float, thresholds: tuple[float, float] = (0.8, 0.5)) -> RewardStages:
        """After a batch with these rates. The next stage comes where the last five reach the threshold on average."""
        if self.stage not in _NEXT:
            return self
        rate, wanted = (compiled, thresholds[0]) if self.stage == "stage1" else (correct, thresholds[1])
        recent = (*self.recent, rate)[-LevelRule().window :]
        if len(recent) == LevelRule().window and sum(recent) / len(recent) >= wanted:
            return RewardStages(stage=_NEXT[self.stage])
        return RewardStages(stage=self.stage, recent=recent)


class TaskHistory(Record):
    """How often each task was solved lately: what is always or never solved teaches nothing."""

    solved: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """By task: the shares of its last groups' rollouts that solved it."""
    groups: int = 2
    """Groups in a row that must agree before a task is left alone."""

    def observed(self, task_id: str, share: float) -> TaskHistory:
        """After a group of that task, of which this share solved it."""
        kept = (*self.solved.get(task_id, ()), share)[-self.groups :]
        return TaskHistory(solved=self.solved | {task_id: kept}, groups=self.groups)

    def worth_drawing(self, tasks: Sequence[str]) -> list[str]:
        """Those of `tasks` that were not always, and not never, solved of late; all, where no other is left."""
        return [task for task in tasks if not self._settled(task)] or list(tasks)

    def _settled(self, task: str) -> bool:
        shares = self.solved.get(task, ())
        return len(shares) >= self.groups and (min(shares) >= 1.0 or max(shares) <= 0.0)


def _goes_well(accuracies: Sequence[float], rule: LevelRule) -> bool:
    return len(accuracies) >= rule.window and sum(accuracies) / len(accuracies) >= rule.threshold
