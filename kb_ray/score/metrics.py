"""From outcomes of episodes to the metrics of a run: overall, per level, per source, per turn.

Says which episodes each number is over; the arithmetic is in formulas and intervals. Quality is over judged
episodes only: a failure of ours or of the model server is no answer. Reads no store and prints nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from kb_ray.records import Episode, Status, StopReason
from kb_ray.score.answers import answers, curve
from kb_ray.score.estimates import Grouping, rate, undefined
from kb_ray.score.formulas import pass_at_k
from kb_ray.score.outcomes import Outcome, TurnOutcome, flagged_tasks, outcomes
from kb_ray.score.summary import Answers, Costs, PassAtK, Scope, Summary, TurnMetrics


def summarise(episodes: Iterable[Episode], *, exclude_flagged: bool = False) -> Summary:
    """Metrics of a stream of episodes, each (task, sample) once. Keeps a few hundred bytes of each.

    With `exclude_flagged` nothing is said of flagged tasks but their names.
    """
    return summarise_outcomes(list(outcomes(episodes)), exclude_flagged=exclude_flagged)


def summarise_outcomes(found: Sequence[Outcome], *, exclude_flagged: bool = False) -> Summary:
    """The same of outcomes, whose order says nothing: not even the last digit of a sum."""
    found = sorted(found, key=lambda item: (item.task_id, item.sample))
    flagged = flagged_tasks(found)
    kept = [item for item in found if item.task_id not in flagged]
    apart = [] if exclude_flagged else [item for item in found if item.task_id in flagged]
    timed = is_timed(found)
    overall = scope(kept, timed)

    def parts(key: Callable[[Outcome], str]) -> dict[str, Scope]:
        split = _split(kept, key)
        return {name: overall if len(split) == 1 else scope(part, timed) for name, part in split.items()}

    return Summary(
        timed=timed,
        overall=overall,
        by_level=parts(lambda item: "none" if item.level is None else str(item.level)),
        by_source=parts(lambda item: item.source),
        flagged=scope(apart, timed) if apart else None,
        everything=scope(found, timed) if apart else None,
        flagged_tasks=tuple(sorted(flagged)),
    )


def is_timed(found: Iterable[Outcome]) -> bool:
    """Whether speed is known: a GPU was seen. Where no code ran at all nobody can say what it would have run on."""
    return any("cuda" in item.devices for item in found)


def best_speedups(found: Iterable[Outcome]) -> list[float]:
    """Speedups of the best turns that count: correct, trusted and timed."""
    answered = (item.best_answer for item in found)
    return [turn.speedup for turn in answered if turn is not None and turn.speedup is not None]


def scope(found: Sequence[Outcome], timed: bool) -> Scope:
    """Metrics of one set of episodes; `timed` tells whether their speeds are known."""
    part = _Part(found, timed)
    judged, turns = part.judged, part.answers_given
    return Scope(
        episodes=len(found),
        judged=len(judged),
        tasks=part.by_task.count,
        samples=max((len(group) for group in part.by_task.groups), default=0),
        best=part.answers(lambda item: item.best_answer),
        last=part.answers(lambda item: item.last_answer),
        success=rate([item.solved_at is not None for item in judged]),
        pass_at_k=part.passing(),
        turns_used=part.by_task.mean([(item.task_id, float(len(item.turns))) for item in judged]),
        turns_to_success=part.by_task.mean(
            [(item.task_id, item.solved_at + 1.0) for item in judged if item.solved_at is not None]
        ),
        format=rate([turn.has_code for turn in turns]),
        hack=rate([turn.status == Status.HACK.value for turn in turns]),
        infra=rate([item.infra_failed for item in found]),
        model_error=rate([item.stop_reason == StopReason.MODEL_ERROR.value for item in found]),
        turns=part.turns(),
        statuses=_counts(turn.status for turn in turns),
        stop_reasons=_counts(item.stop_reason for item in found),
        curve=part.curve(),
        costs=part.costs(),
    )


@dataclass
class _Part:
    """One set of episodes while its metrics are made."""

    found: Sequence[Outcome]
    timed: bool

    @cached_property
    def judged(self) -> list[Outcome]:
        return [item for item in self.found if item.judged]

    @cached_property
    def by_task(self) -> Grouping:
        return Grouping([item.task_id for item in self.judged])

    @cached_property
    def answers_given(self) -> list[TurnOutcome]:
        """Every answer that was judged."""
        return [turn for item in self.judged for turn in item.turns]

    def answers(self, pick: Callable[[Outcome], TurnOutcome | None]) -> Answers:
        return answers([pick(item) for item in self.judged], self.by_task, self.timed)

    def passing(self) -> tuple[PassAtK, ...]:
        chances = [
            (task, pass_at_k(len(group), sum(self.judged[i].solved_at is not None for i in group)))
            for task, group in zip(self.by_task.names, self.by_task.groups, strict=True)
        ]
        made = []
        for k in range(1, max((len(found) for _, found in chances), default=0) + 1):
            values = [(task, found[k - 1]) for task, found in chances if len(found) >= k]
            made.append(PassAtK(k=k, estimate=self.by_task.mean(values), tasks=len(values)))
        return tuple(made)

    def turns(self) -> tuple[TurnMetrics, ...]:
        deepest = max((len(item.turns) for item in self.judged), default=0)
        return tuple(self._turn(index) for index in range(deepest))

    def _turn(self, index: int) -> TurnMetrics:
        reached = [item for item in self.judged if len(item.turns) > index]
        given = [item.turns[index] for item in reached]
        solved = [item.solved_at is not None and item.solved_at <= index for item in self.judged]
        grouping = Grouping([item.task_id for item in reached])
        return TurnMetrics(
            turn=index + 1,
            answers=answers(given, grouping, self.timed),
            format=rate([turn.has_code for turn in given]),
            hack=rate([turn.status == Status.HACK.value for turn in given]),
            solved_by=rate(solved),
            statuses=_counts(turn.status for turn in given),
        )

    def curve(self) -> tuple[tuple[float, float], ...]:
        if not self.timed or not self.judged:
            return ()
        return curve([item.best_answer for item in self.judged], self.by_task)

    def costs(self) -> Costs:
        turns = [(item.task_id, turn) for item in self.found for turn in item.turns]
        # What failed later was paid for too, and so was the correct kernel that it may have come to before.
        solved = [(item.task_id, 1.0) for item in self.found if item.solved_at is not None]
        grouping = Grouping([item.task_id for item in self.found])
        on_gpu = any("cuda" in item.devices for item in self.found)
        per = grouping.ratio([(task, turn.gpu_s) for task, turn in turns], solved) if on_gpu else undefined()
        return Costs(
            tokens=sum(turn.tokens for _, turn in turns),
            prompt_tokens=sum(turn.prompt_tokens for _, turn in turns),
            gpu_s=sum(turn.gpu_s for _, turn in turns),
            model_s=sum(turn.model_s for _, turn in turns),
            correct=len(solved),
            tokens_per_correct=grouping.ratio([(task, float(turn.tokens)) for task, turn in turns], solved),
            gpu_s_per_correct=per,
        )


def _split(found: Sequence[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    parts: dict[str, list[Outcome]] = {}
    for item in found:
        parts.setdefault(key(item), []).append(item)
    return dict(sorted(parts.items()))


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0])))
