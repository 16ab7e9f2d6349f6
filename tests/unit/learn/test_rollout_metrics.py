"""What a batch is counted as: a failure of our own side is none of the policy's, and what the window ends is told."""

from __future__ import annotations

import pytest

from kb_ray.learn.metrics import histograms, of_rollouts, of_window
from kb_ray.learn.rollouts import Try
from kb_ray.learn.samples import Made, Step
from kb_ray.records import Episode, StopReason
from kb_ray.refine import Finish, Policy, State
from tests.unit.score.episodes import bad, episode, ok


def as_try(found: Episode) -> Try:
    """The same episode as training holds it: a turn without a verdict has a step without a score."""
    state = State(task=found.task, policy=Policy(), messages=(), turns=found.turns, phase="finished")
    steps = [Step((), (), None, 1.3 if turn.verdict.correct else 0.0) for turn in found.turns]
    if found.stop_reason is StopReason.INFRA_ERROR:
        steps.append(Step((), (), None, None))
    return Try(state, Finish(stop_reason=found.stop_reason, best_turn=found.best_turn), found.sample, steps)


SOLVED, WRONG = as_try(episode("a", ok(1.0))), as_try(episode("a", bad()))
FAILED_AT_ONCE = as_try(episode("a", stop=StopReason.INFRA_ERROR))
FAILED_LATER = as_try(episode("a", bad(), stop=StopReason.INFRA_ERROR))


@pytest.mark.parametrize("failed", [FAILED_AT_ONCE, FAILED_LATER])
def test_a_try_that_our_side_failed_lowers_no_number(failed: Try) -> None:
    without = of_rollouts([[SOLVED, WRONG]])
    assert without["PerLevel/1/CorrectRate"] == without["multiturn/success_rate"] == 0.5
    assert of_rollouts([[SOLVED, WRONG, failed]]) == without
    made = Made(())
    assert histograms([[SOLVED, WRONG, failed]], made) == histograms([[SOLVED, WRONG]], made)


@pytest.mark.parametrize("group", [[FAILED_AT_ONCE, FAILED_LATER], [as_try(episode("a", stop=StopReason.CONTEXT))]])
def test_what_nothing_was_seen_of_is_left_out(group: list[Try]) -> None:
    assert of_rollouts([group]) == {}


def test_tries_that_the_window_ends_are_counted_at_whatever_turn() -> None:
    cut = [as_try(episode("a", *verdicts, stop=StopReason.CONTEXT)) for verdicts in ((), (bad(), ok(1.0)))]
    assert of_window([[SOLVED, *cut], [WRONG, FAILED_LATER]]) == {"Rollouts/EndedByWindow": 2.0}
    assert of_window([[SOLVED]]) == {"Rollouts/EndedByWindow": 0.0}
