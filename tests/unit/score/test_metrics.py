"""Every metric of a small store against numbers worked out by hand."""

from __future__ import annotations

import pytest

from kb_ray.records import Stage, Status, StopReason
from kb_ray.score.metrics import best_speedups, summarise
from kb_ray.score.outcomes import outcomes
from kb_ray.score.summary import Answers, Scope
from tests.unit.score.episodes import GPU_S, NO_CODE, TOKENS, bad, episode, ok

COMPILE = bad(Status.COMPILE_ERROR, Stage.COMPILE)
STORE = [
    # task a: both samples correct; the second gets worse at its last turn
    episode("a", bad(), ok(0.5), ok(2.0), stop=StopReason.SUCCESS_FAST),
    episode("a", ok(0.9), bad(), sample=1),
    # task b: one of two
    episode("b", NO_CODE, COMPILE, sample=0),
    episode("b", ok(4.0), sample=1, stop=StopReason.SUCCESS_FAST),
    # task c, level 2: correct, but not to be trusted; then a hack
    episode("c", bad(Status.HACK), ok(50.0, trusted=False), level=2),
    episode("c", sample=1, level=2, stop=StopReason.CONTEXT),
    # says nothing of the model
    episode("d", bad(), level=2, stop=StopReason.INFRA_ERROR),
    episode("d", sample=1, level=2, stop=StopReason.MODEL_ERROR),
]


@pytest.fixture(scope="module")
def scope() -> Scope:
    return summarise(STORE).overall


def shares(answers: Answers) -> dict[float, float | None]:
    return {item.p: item.share.value for item in answers.fast_p}


def test_what_is_counted(scope: Scope) -> None:
    assert (scope.episodes, scope.judged, scope.tasks, scope.samples) == (8, 6, 3, 2)
    assert (scope.infra.count, scope.model_error.count, scope.infra.n) == (1, 1, 8)
    assert scope.stop_reasons["max_turns_reached"] == 3


def test_the_best_of_turns(scope: Scope) -> None:
    best = scope.best
    assert (best.valid.count, best.compiled.count, best.correct.count, best.correct.n) == (5, 4 + 0, 4, 6)
    assert best.trusted.count == 3
    # per task a: 2.0 and 0.9; b: nothing and 4.0; c: untrusted and no answer
    assert shares(best) == pytest.approx(
        {
            0.0: (1 + 0.5 + 0.5) / 3, 0.5: (1 + 0.5) / 3, 0.8: (1 + 0.5) / 3, 1.0: (0.5 + 0.5) / 3,
            1.2: 1 / 3, 1.5: 1 / 3, 2.0: 0.5 / 3, 3.0: 0.5 / 3,
        }
    )  # fmt: skip
    assert best.fast_2_at_least.value == pytest.approx(1 / 3)
    assert best.speedup_mean.value == pytest.approx((2.0 + 0.9 + 4.0) / 3)
    assert best.speedup_median.value == 2.0
    assert best.speedup_geomean.value == pytest.approx((2.0 * 0.9 * 4.0) ** (1 / 3))
    assert best_speedups(outcomes(STORE)) == [2.0, 0.9, 4.0]


def test_the_last_turn_is_not_the_best_one(scope: Scope) -> None:
    assert (scope.last.correct.count, scope.last.correct.n) == (3, 6)
    assert scope.last.speedup_mean.value == pytest.approx(3.0)


def test_over_turns(scope: Scope) -> None:
    assert scope.turns_used.value == pytest.approx((3 + 2 + 2 + 1 + 2 + 0) / 6)
    assert scope.turns_to_success.value == pytest.approx((2 + 1 + 1 + 2) / 4)
    assert (scope.success.count, scope.success.n) == (4, 6)
    assert (scope.format.count, scope.format.n) == (9, 10)
    assert (scope.hack.count, scope.hack.n) == (1, 10)
    first, second, third = scope.turns
    assert [turn.answers.correct.n for turn in scope.turns] == [5, 4, 1]
    assert [turn.answers.correct.count for turn in scope.turns] == [2, 2, 1]
    assert [turn.solved_by.count for turn in scope.turns] == [2, 4, 4]
    assert first.statuses == {"ok": 2, "hack": 1, "mismatch": 1, "no_code": 1}
    assert second.answers.compiled.count == 3
    assert third.hack.count == 0


def test_pass_at_k(scope: Scope) -> None:
    one, two = scope.pass_at_k
    assert one.estimate.value == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert two.estimate.value == pytest.approx(1.0)
    assert (one.k, two.k, two.tasks) == (1, 2, 3)


def test_pass_at_k_is_over_the_tasks_with_enough_samples() -> None:
    found = summarise([episode("a", ok(1.0)), episode("b", bad()), episode("b", ok(1.0), sample=1)])
    one, two = found.overall.pass_at_k
    assert (one.tasks, two.tasks) == (2, 1)
    assert one.estimate.value == pytest.approx(0.75)
    assert two.estimate.value == 1.0


def test_costs_hold_what_failed_too(scope: Scope) -> None:
    turns = 3 + 2 + 2 + 1 + 2 + 1
    assert scope.costs.tokens == turns * TOKENS
    assert scope.costs.prompt_tokens == turns * 10
    assert scope.costs.model_s == turns * 3.0
    assert scope.costs.gpu_s == pytest.approx(5 * GPU_S)
    assert scope.costs.tokens_per_correct.value == pytest.approx(turns * TOKENS / 4)
    assert scope.costs.gpu_s_per_correct.value == pytest.approx(5 * GPU_S / 4)


def test_the_curve_falls_and_meets_the_named_points(scope: Scope) -> None:
    curve, named = dict(scope.curve), shares(scope.best)
    assert list(curve.values()) == sorted(curve.values(), reverse=True)
    assert {p: curve[p] for p in named} == pytest.approx(named)
    assert curve[10.0] == 0.0


def test_levels_and_sources_are_their_own_metrics() -> None:
    found = summarise([*STORE, episode("e", ok(3.0), level=None, source="folder")])
    assert set(found.by_level) == {"1", "2", "none"}
    assert set(found.by_source) == {"folder", "kernelbench"}
    assert found.by_level["1"].judged == 4
    assert found.by_level["2"].best.trusted.count == 0
    assert found.by_source["folder"].best.speedup_mean.value == 3.0


def test_a_flag_seen_once_sets_all_samples_of_the_task_apart() -> None:
    flagged = [episode("z", ok(9.0, flags=["zeros_pass"])), episode("z", bad(), sample=1)]
    found = summarise([*STORE, *flagged])
    assert found.flagged_tasks == ("kernelbench/1/z",)
    assert found.overall == summarise(STORE).overall
    assert found.flagged is not None
    assert found.everything is not None
    assert (found.flagged.judged, found.everything.judged) == (2, 8)
    assert summarise([*STORE, *flagged], exclude_flagged=True).flagged is None
    by_task = summarise([episode("z", bad(), flags=["ignores_input"]), episode("y", bad(), flags=["too_large"])])
    assert by_task.flagged_tasks == ("kernelbench/1/z",)


def test_nothing_is_said_of_speed_where_nothing_is_timed() -> None:
    found = summarise([episode("a", bad(device="cpu"), ok(None)), episode("b", bad(device="cpu"))])
    best = found.overall.best
    assert not found.timed
    assert (best.correct.count, best.trusted.count) == (1, 0)
    assert {p for p, value in shares(best).items() if value is not None} == {0.0}
    assert best.fast_2_at_least.value is best.speedup_mean.value is best.speedup_geomean.value is None
    assert found.overall.curve == ()
    assert found.overall.costs.gpu_s_per_correct.value is None


def test_nothing_is_said_of_speed_where_no_code_ran_at_all() -> None:
    found = summarise([episode("a", NO_CODE, NO_CODE), episode("b", stop=StopReason.CONTEXT)])
    assert not found.timed
    assert shares(found.overall.best) == {p: 0.0 if p == 0 else None for p in shares(found.overall.best)}
    assert found.overall.best.fast_2_at_least.value is None


def test_no_number_depends_on_the_order_of_episodes() -> None:
    uneven = [episode(f"t{i}", ok(0.3 + i * i % 7), sample=s) for i in range(12) for s in range(i % 3 + 1)]
    assert summarise([*STORE, *uneven][::-1]) == summarise([*STORE, *uneven])


def test_no_episode_at_all_is_not_an_error() -> None:
    found = summarise([episode("d", level=2, stop=StopReason.INFRA_ERROR)]).overall
    assert (found.judged, found.best.correct.value, found.pass_at_k, found.turns) == (0, None, (), ())
    assert found.infra.value == 1.0


def test_what_a_correct_kernel_cost_counts_failed_episodes_on_both_sides() -> None:
    found = [
        episode("a", bad(), ok(2.0)),
        episode("b", ok(2.0), stop=StopReason.INFRA_ERROR),
        episode("c", bad(), stop=StopReason.MODEL_ERROR),
    ]
    costs = summarise(found).overall.costs
    assert (costs.tokens, costs.correct) == (4 * TOKENS, 2)
    assert costs.tokens_per_correct.value == pytest.approx(4 * TOKENS / 2)
    assert costs.gpu_s_per_correct.value == pytest.approx(costs.gpu_s / 2)
