"""Schedules: when harder levels come in, what is paid for, which tasks are left alone, and that states survive."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray.learn.batching import bucketed
from kb_ray.learn.curriculum import LevelMix, LevelRule, RewardStages, TaskHistory

RULE = LevelRule()


def after(*accuracies: dict[int, float], mix: LevelMix | None = None) -> LevelMix:
    found = mix or LevelMix.first(RULE)
    for accuracy in accuracies:
        found = found.observed(accuracy, RULE)
    return found


@pytest.mark.parametrize(
    ("accuracies", "p2"),
    [
        ([0.9] * 4, 0.1),
        ([0.9] * 5, 0.15),
        ([0.9] * 7, 0.25),
        ([0.4] * 5, 0.15),
        ([0.39] * 9, 0.1),
        ([0.0, 0.0, 0.9, 0.9, 0.9], 0.15),
        ([0.9] * 99, 0.5),
    ],
)
def test_level_2_grows_while_level_1_goes_well(accuracies: list[float], p2: float) -> None:
    assert after(*({1: value} for value in accuracies)).p2 == pytest.approx(p2)


def test_a_batch_without_level_1_changes_nothing() -> None:
    before = after(*[{1: 0.9}] * 5)
    assert after({2: 1.0}, mix=before).p2 == before.p2


def test_level_3_follows_once_level_2_has_its_share() -> None:
    full = after(*[{1: 1.0, 2: 1.0}] * 12)
    assert (full.p2, full.p3) == (0.5, 0.0)
    assert after({2: 1.0}, mix=full).p3 == pytest.approx(0.1)
    assert after(*[{2: 1.0}] * 3, mix=full).p3 == pytest.approx(0.2)
    assert after(*[{2: 0.0}] * 5, mix=full).p3 < 0.3
    assert after(*[{2: 1.0}] * 99, mix=full).p3 == 0.5


@given(st.lists(st.dictionaries(st.sampled_from([1, 2, 3]), st.floats(0, 1)), max_size=60))
def test_shares_add_up_and_no_level_ever_loses_ground(batches: list[dict[int, float]]) -> None:
    mix = LevelMix.first(RULE)
    for accuracy in batches:
        later = mix.observed(accuracy, RULE)
        assert sum(later.shares().values()) == pytest.approx(1)
        assert later.p2 >= mix.p2
        assert later.p3 >= mix.p3
        mix = LevelMix.model_validate_json(later.model_dump_json())
        assert mix == later


def test_levels_are_drawn_by_their_share() -> None:
    draw, mix = random.Random(0), LevelMix(p2=0.5, p3=0.2)
    seen = Counter(mix.draw({1, 2, 3}, draw) for _ in range(4000))
    assert {level: round(seen[level] / 4000, 1) for level in (1, 2, 3)} == {1: 0.4, 2: 0.4, 3: 0.2}
    assert {LevelMix(p2=0.5).draw({3}, draw) for _ in range(9)} == {3}
    with pytest.raises(ValueError, match="no level"):
        mix.draw(set(), draw)


def test_what_is_paid_for_moves_on_with_success() -> None:
    stages = RewardStages()
    for _ in range(4):
        stages = stages.observed(compiled=0.9, correct=0.0)
    assert stages.stage == "stage1"
    stages = stages.observed(compiled=0.9, correct=0.0)
    assert (stages.stage, stages.recent) == ("stage2", ())
    for _ in range(9):
        stages = stages.observed(compiled=1.0, correct=0.49)
    assert stages.stage == "stage2"
    for _ in range(9):
        stages = stages.observed(compiled=1.0, correct=0.6)
    assert stages.stage == "stage3"
    assert stages.observed(0.0, 0.0) == stages


def test_tasks_that_are_always_or_never_solved_are_left_alone() -> None:
    history = TaskHistory()
    for task, shares in {"always": (1.0, 1.0), "never": (0.0, 0.0), "once": (1.0,), "changing": (0.0, 0.5)}.items():
        for share in shares:
            history = history.observed(task, share)
    assert history.worth_drawing(["always", "never", "once", "changing", "new"]) == ["once", "changing", "new"]
    assert history.worth_drawing(["always", "never"]) == ["always", "never"]
    assert TaskHistory.model_validate_json(history.model_dump_json()) == history


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_batches_hold_every_sequence_once_and_are_not_too_large(lengths: list[int], most: int) -> None:
    batches = bucketed(lengths, most)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= most
