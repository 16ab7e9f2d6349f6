"""Rollouts to samples: the right tokens with the right advantage, and nothing left out without being counted."""

from __future__ import annotations

from typing import Any

import pytest

from kb_ray.learn.samples import Rollout, Step, answer_sample, best_samples, grpo_samples


def step(score: float | None, answer: tuple[int, ...] = (7, 8), **fields: Any) -> Step:
    given = {"prompt": (1, 2, 3), "answer": answer, "logprobs": tuple(-0.5 for _ in answer), "score": score} | fields
    return Step(**given)


def rollout(*steps: Step, task: str = "t") -> Rollout:
    return Rollout(task, steps)


RULE: dict[str, Any] = {"gamma": 0.4, "estimator": "mean", "pool": "turn"}


def test_each_turn_is_a_sample_with_its_own_advantage_on_its_own_tokens() -> None:
    good = rollout(step(0.0, (5,)), step(1.0, (6, 9), prompt=(1, 2, 3, 5, 4)))
    bad = rollout(step(0.0, (5, 5)), step(0.0, (6,)))
    made = grpo_samples([[good, bad]], **RULE)
    assert [(s.tokens, s.trained, round(s.advantage, 6)) for s in made.samples] == [
        ((1, 2, 3, 5), (False, False, False, True), 0.2),
        ((1, 2, 3, 5, 4, 6, 9), (False,) * 5 + (True,) * 2, 0.5),
        ((1, 2, 3, 5, 5), (False,) * 3 + (True,) * 2, -0.2),
        ((1, 2, 3, 6), (False,) * 3 + (True,), -0.5),
    ]
    assert (made.groups, +made.left_out) == (1, {})


def test_a_rollout_with_a_failure_of_our_own_is_dropped_whole_and_counts_in_no_baseline() -> None:
    failed = rollout(step(1.0), step(None))
    others = [rollout(step(1.0), step(0.0)), rollout(step(0.0), step(0.0))]
    with_it, without = grpo_samples([[failed, *others]], **RULE), grpo_samples([others], **RULE)
    assert with_it.samples == without.samples
    assert with_it.left_out["infra"] == 2


def test_a_truncated_answer_is_not_trained_on_but_stays_in_the_baseline_unless_told_otherwise() -> None:
    group = [rollout(step(0.0, truncated=True)), rollout(step(1.0)), rollout(step(0.5))]
    made = grpo_samples([group], **RULE)
    assert [s.advantage for s in made.samples] == [0.5, 0.0]
    assert made.left_out["truncated"] == 1
    apart = grpo_samples([group], **RULE, truncated_in_baseline=False)
    assert [s.advantage for s in apart.samples] == [0.25, -0.25]
    assert apart.left_out["truncated"] == 1


def test_groups_that_tell_nothing_are_found_by_returns_not_by_sums_of_scores() -> None:
    alike = [rollout(step(0.0), step(0.0)), rollout(step(0.0), step(0.0))]
    equal_sums = [rollout(step(1.0), step(0.0)), rollout(step(0.0), step(1.0))]
    made = grpo_samples([alike, equal_sums], **RULE)
    assert (made.groups, made.left_out["uninformative"], len(made.samples)) == (1, 4, 4)


def test_stale_groups_are_left_out_whole() -> None:
    fresh = [rollout(step(1.0, policy=9)), rollout(step(0.0, policy=10))]
    stale = [rollout(step(1.0, policy=8)), rollout(step(0.0, policy=10))]
    made = grpo_samples([fresh, stale], **RULE, policy=10, max_staleness=1)
    assert (made.groups, made.left_out["stale"]) == (1, 2)
    assert grpo_samples([fresh], **RULE, policy=10, max_staleness=0).groups == 0


def right(score: float | None, answer: tuple[int, ...] = (7, 8), **fields: Any) -> Step:
    return step(score, answer, correct=True, **fields)


def test_the_best_answers_are_kept_each_once() -> None:
    group = [
        rollout(right(0.7, (1,)), right(1.3, (2,))),
        rollout(right(1.3, (2,)), right(2.0, (3,), truncated=True)),
        rollout(right(0.9, (4,)), step(0.0, (5,)), right(None, (6,))),
    ]
    made = best_samples([group], keep=2)
    assert [(s.tokens[-1], s.advantage) for s in made.samples] == [(2, 1.0), (4, 1.0)]
    assert made.left_out == {"duplicate": 1, "truncated": 1, "worse": 1, "failed": 1, "infra": 1}


@pytest.mark.parametrize("score", [0.0, 0.3, 0.5])
def test_a_group_without_success_teaches_nothing_whatever_its_wrong_answers_earn(score: float) -> None:
    made = best_samples([[rollout(step(score)), rollout(step(score, (9,)))]], keep=3)
    assert (made.samples, made.groups, made.left_out["failed"]) == ((), 0, 2)


def test_log_probabilities_of_other_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="1 log-probabilities for an answer of 2 tokens"):
        answer_sample("t", 0, step(1.0, (7, 8), logprobs=(-0.5,)), 1.0)
