"""What metrics need of an episode, in a few hundred bytes: no text, no code, no samples of times.

Turns an Episode into an Outcome. Does not know any metric, and does not know which stored episode counts.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kb_ray.records import REDONE_ON_RESUME, Episode, Status, StopReason, Turn, Verdict
from kb_ray.score.reward import staged
from kb_ray.tasks.quality import EXCLUDING


class TurnOutcome(NamedTuple):
    """One answer and its verdict."""

    status: str
    stage: str
    valid: bool
    compiled: bool
    correct: bool
    trusted: bool
    timed: bool
    passed: float
    """Share of tests passed, 0 to 1."""
    speedup: float | None
    """Reference time over kernel time, of a correct, trusted and timed kernel; None for every other."""
    reward: float
    """The second document's staged reward."""
    has_code: bool
    tokens: int
    """Tokens generated, reasoning included."""
    prompt_tokens: int
    gpu_s: float
    """Seconds of GPU time that the verdict took; 0 on a CPU."""
    model_s: float
    """Seconds from asking to the answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one episode."""

    episode_id: str
    task_id: str
    source: str
    level: int | None
    name: str
    problem_id: int | None
    sample: int
    stop_reason: str
    best: int | None
    """Index into `turns`; None where there is no turn."""
    turns: tuple[TurnOutcome, ...]
    flagged: bool
    """A flag that excludes tasks was seen, on the task or in a verdict."""
    devices: tuple[str, ...]
    """What the verdicts were reached on, sorted; empty where no code was ever run."""

    @property
    def judged(self) -> bool:
        """Whether it says something of the model: it did not end by a failure of server or verifier."""
        return self.stop_reason not in _FAILED

    @property
    def infra_failed(self) -> bool:
        """Whether our own side failed."""
        return self.stop_reason == StopReason.INFRA_ERROR.value

    @property
    def best_answer(self) -> TurnOutcome | None:
        """The best turn's; None where there is no turn."""
        return None if self.best is None else self.turns[self.best]

    @property
    def last_answer(self) -> TurnOutcome | None:
        """The last turn's; None where there is no turn."""
        return self.turns[-1] if self.turns else None

    @property
    def solved_at(self) -> int | None:
        """0-based turn of the first correct kernel; None where there is none."""
        return next((index for index, turn in enumerate(self.turns) if turn.correct), None)


_FAILED = frozenset(reason.value for reason in REDONE_ON_RESUME)


def outcome(episode: Episode) -> Outcome:
    """The Outcome of one episode."""
    task = episode.task
    verdicts = [turn.verdict for turn in episode.turns]
    flags = {*task.flags, *(flag for verdict in verdicts for flag in verdict.evidence.flags)}
    return Outcome(
        episode_id=episode.episode_id,
        task_id=sys.intern(task.task_id),
        source=sys.intern(task.source),
        level=task.level,
        name=sys.intern(task.name),
        problem_id=task.problem_id,
        sample=episode.sample,
        stop_reason=episode.stop_reason.value,
        best=episode.best_turn,
        turns=tuple(_turn(turn) for turn in episode.turns),
        flagged=not EXCLUDING.isdisjoint(flags),
        devices=tuple(sorted({sys.intern(str(v.env.device)) for v in verdicts if v.env.device is not None})),
    )


def outcomes(episodes: Iterable[Episode]) -> Iterator[Outcome]:
    """The same of many, one at a time."""
    return map(outcome, episodes)


def flagged_tasks(found: Collection[Outcome]) -> frozenset[str]:
    """Ids of tasks that any of their episodes shows to be flagged."""
    return frozenset(item.task_id for item in found if item.flagged)


def gpu_seconds(verdict: Verdict) -> float:
    """Seconds of GPU time that a verdict took. Waiting for a GPU costs none, nor does a CPU."""
    if verdict.env.device != "cuda":
        return 0.0
    waited = sum(seconds for phase, seconds in verdict.seconds.items() if phase.startswith("queue"))
    return max(0.0, verdict.seconds.get("total", 0.0) - waited)


def _turn(turn: Turn) -> TurnOutcome:
    verdict, usage = turn.verdict, turn.completion.usage
    counts = verdict.correct and verdict.trusted and verdict.timed
    return TurnOutcome(
        status=sys.intern(Status(verdict.status).value),
        stage=sys.intern(verdict.stage.value),
        valid=verdict.valid,
        compiled=verdict.compiled,
        correct=verdict.correct,
        trusted=verdict.trusted,
        timed=verdict.timed,
        passed=verdict.tests_passed / verdict.tests_total if verdict.tests_total else 0.0,
        speedup=verdict.speedup if counts else None,
        reward=staged(verdict),
        has_code=turn.triton_code is not None,
        tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        gpu_s=gpu_seconds(verdict) if turn.triton_code is not None else 0.0,
        model_s=turn.times.model_s,
    )
