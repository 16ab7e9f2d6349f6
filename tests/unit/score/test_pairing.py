"""Two runs over the same tasks: what is gained, lost and by how much, and what is published about the same."""

from __future__ import annotations

import pytest

from kb_ray.evaluation.tables import comparison_table
from kb_ray.records import Episode, StopReason
from kb_ray.score.baselines import published
from kb_ray.score.metrics import summarise_outcomes
from kb_ray.score.outcomes import Outcome, outcome
from kb_ray.score.pairing import compare
from tests.unit.score.episodes import NO_CODE, bad, episode, ok


def of(*episodes: Episode) -> list[Outcome]:
    return [outcome(item) for item in episodes]


FIRST = of(
    episode("a", ok(1.0)), episode("b", ok(2.0)), episode("c", bad()), episode("d", bad()), episode("x", ok(1.0))
)
SECOND = of(episode("a", ok(4.0)), episode("b", bad()), episode("c", ok(1.1)), episode("d", ok(3.0)))


def test_differences_are_per_task_and_over_shared_tasks_only() -> None:
    found = compare(FIRST, SECOND)
    assert (found.tasks, found.only_first, found.only_second) == (4, 1, 0)
    assert found.gained == ("kernelbench/1/c", "kernelbench/1/d")
    assert found.lost == ("kernelbench/1/b",)
    rows = {row.name: row for row in found.differences}
    assert (rows["correct"].first, rows["correct"].second) == (0.5, 0.75)
    assert rows["correct"].difference.value == pytest.approx(0.25)
    assert rows["fast_1"].difference.value == pytest.approx(3 / 4 - 1 / 4)
    assert {"fast_2 (> 2)", "fast_2 (>= 2)"} <= rows.keys()
    # only task a has a speed in both
    assert rows["speedup"].difference.value == pytest.approx(4.0)


def test_a_side_without_any_code_is_compared_in_speed_unless_the_other_was_not_timed() -> None:
    nothing = of(episode("a", NO_CODE), episode("b", NO_CODE))
    rows = {row.name: row for row in compare(nothing, FIRST).differences}
    assert rows["fast_1"].difference.value == pytest.approx(1 / 2)
    untimed = of(episode("a", ok(None)), episode("b", ok(None)))
    assert "fast_1" not in {row.name for row in compare(nothing, untimed).differences if row.difference.value}


def test_pairing_is_what_makes_a_steady_gain_certain() -> None:
    slow = of(*(episode(f"t{i}", ok(0.1 * (i + 1))) for i in range(20)))
    fast = of(*(episode(f"t{i}", ok(0.11 * (i + 1))) for i in range(20)))
    ratio = compare(slow, fast).differences[-1].difference
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_samples_of_a_task_are_averaged_before_they_are_compared() -> None:
    two = of(episode("a", ok(1.0)), episode("a", bad(), sample=1), episode("b", bad()))
    one = of(episode("a", bad()), episode("b", bad()))
    assert compare(one, two).differences[2].difference.value == pytest.approx(0.25)


def test_unequal_numbers_of_samples_are_said_where_they_matter() -> None:
    once = of(episode("a", bad()), episode("b", ok(1.0)))
    thrice = of(*(episode("a", ok(1.0) if i == 2 else bad(), sample=i) for i in range(3)), episode("b", ok(1.0)))
    found = compare(once, thrice)
    assert (found.samples_first, found.samples_second, found.uneven) == (2, 4, 1)
    assert found.gained == ("kernelbench/1/a",)
    assert found.note is not None
    assert found.note in comparison_table(found)
    # what only one run judged, or our side failed, is not compared
    lost = of(episode("a", sample=1, stop=StopReason.INFRA_ERROR), episode("x", ok(1.0)))
    even = compare([*once, *lost], once)
    assert even.note is None
    assert "samples" not in comparison_table(even)


def test_a_comparison_does_not_depend_on_the_order_of_episodes() -> None:
    one = of(*(episode(f"t{i}", ok(0.3 + i * i % 7), sample=s) for i in range(12) for s in range(i % 3 + 1)))
    two = of(*(episode(f"t{i}", ok(0.7 + i * i % 5) if i % 4 else bad()) for i in range(12)))
    assert compare(one[::-1], two[::-1]) == compare(one, two)
    assert published(one[::-1]) == published(one)


def test_stores_without_a_common_task_say_nothing() -> None:
    found = compare(FIRST, of(episode("q", ok(1.0))))
    assert (found.tasks, found.differences) == (0, ())


def test_published_numbers_stand_beside_the_same_share_of_the_same_level() -> None:
    found = of(episode("a", bad(), ok(2.0)), episode("b", ok(1.5)), episode("c", bad(), source="builtin"))
    rows = published(found)
    assert published(found[:2]) == rows
    ours = {(row.system, row.metric, row.level): row for row in rows}
    triton = ours["TritonRL", "correct", 1]
    assert (triton.published, triton.ours.value, triton.tasks) == (0.63, 0.5, 2)
    assert ("TritonRL", "correct", 2) not in ours
    # a best of ten turns is not compared with a best of two
    assert {row.turns for row in rows} == {1}
    assert published(of(episode("a", ok(1.0), source="folder"))) == ()


def test_prompts_that_never_fitted_count_beside_published_numbers_as_they_do_in_the_table() -> None:
    lost = [episode(f"t{i}", stop=StopReason.CONTEXT) for i in range(9)]
    found = of(episode("a", ok(2.0)), *lost, episode("ours", stop=StopReason.INFRA_ERROR))
    table = summarise_outcomes(found).overall.best
    rows = {(row.system, row.metric): row for row in published(found)}
    triton, fast = rows["TritonRL", "correct"], rows["DeepSeek-R1, CUDA", "fast_1"]
    assert (triton.ours, triton.ours.value, triton.ours.n, triton.tasks) == (table.correct, 0.1, 10, 10)
    assert fast.ours.value == pytest.approx(0.1)
    # nothing but such prompts is a level that was tried, too
    assert {row.ours.value for row in published(of(*lost))} == {0.0}


def test_a_best_of_ten_turns_is_over_all_that_were_judged() -> None:
    found = of(episode("a", *[bad()] * 9, ok(2.0)), episode("b", stop=StopReason.CONTEXT))
    rows = {(row.metric, row.turns): row for row in published(found) if row.system.startswith("DeepSeek")}
    assert rows["fast_1", 10].ours.value == 0.5
    assert rows["fast_1", 1].ours.value == 0.0


def test_speed_is_not_set_beside_published_numbers_where_nothing_was_timed() -> None:
    assert {row.metric for row in published(of(episode("a", ok(None))))} == {"correct"}
