"""What a verdict is worth under each scheme, and which verdicts may not be rewards."""

from __future__ import annotations

import pytest

from kb_ray.records import Stage, Status, Verdict
from kb_ray.score.outcomes import outcome
from kb_ray.score.reward import PRESETS, RewardRule, Weights, kevin, reward, staged, weighted
from tests.unit.score.episodes import NO_CODE, bad, episode, ok

STAGE1, STAGE2, STAGE3 = (PRESETS[name] for name in ("stage1", "stage2", "stage3"))


def passed(share: int, stage: Stage = Stage.FULL, status: Status = Status.MISMATCH) -> Verdict:
    """Wrong, with `share` of five tests passed."""
    return bad(status, stage).model_copy(update={"tests_passed": share, "tests_total": 5})


@pytest.mark.parametrize(
    ("verdict", "of_staged", "of_kevin", "of_first", "of_second", "of_third"),
    [
        (NO_CODE, 0.0, 0.0, 0.0, 0.0, 0.0),
        (bad(Status.COMPILE_ERROR, Stage.COMPILE), 0.0, 0.0, 0.3, 0.1, 0.05),
        (passed(0, Stage.TINY, Status.RUNTIME_ERROR), 0.3, 0.0, 0.8, 0.3, 0.15),
        (passed(1), 0.5, 0.0, 0.84, 0.44, 0.25),
        (passed(4), 0.56, 0.0, 0.96, 0.86, 0.55),
        (passed(5), 0.5, 0.0, 0.8, 0.3, 0.15),
        (passed(5, Stage.TIMING), 0.5, 0.0, 0.8, 0.3, 0.15),
        (ok(0.5), 0.775, 0.8, 1.0, 1.0, 0.65 + 0.35 / 4),
        (ok(1.0), 0.85, 1.3, 1.0, 1.0, 0.825),
        (ok(2.0), 1.0, 2.3, 1.0, 1.0, 1.0),
        (ok(7.0), 1.0, 7.3, 1.0, 1.0, 1.0),
    ],
)
def test_table(
    verdict: Verdict, of_staged: float, of_kevin: float, of_first: float, of_second: float, of_third: float
) -> None:
    assert staged(verdict) == pytest.approx(of_staged)
    assert kevin(verdict) == pytest.approx(of_kevin)
    assert [weighted(verdict, w) for w in (STAGE1, STAGE2, STAGE3)] == pytest.approx([of_first, of_second, of_third])
    assert outcome(episode("a", verdict)).turns[0].reward == pytest.approx(of_staged)


@pytest.mark.parametrize("scheme", ["staged", "weighted", "kevin"])
@pytest.mark.parametrize("weights", [STAGE1, STAGE3])
def test_a_hack_is_nothing_and_what_may_not_be_a_reward_is_none(scheme: str, weights: Weights) -> None:
    rule = RewardRule.model_validate({"scheme": scheme, "weights": weights})
    assert reward(bad(Status.HACK, Stage.TIMING), rule) == 0.0
    assert reward(bad(Status.INFRA_ERROR, Stage.STATIC), rule) is None
    assert reward(ok(90.0, trusted=False), rule) is None
    assert reward(ok(None), rule) is None
    assert reward(bad(device="cpu"), rule) is None


def test_a_cpu_pays_for_correctness_where_that_is_allowed() -> None:
    rule = RewardRule(scheme="kevin", allow_untimed=True)
    assert reward(ok(None), rule) == pytest.approx(0.3)
    assert reward(ok(None), rule, flagged=True) is None
    assert reward(bad(device="cpu"), rule) == 0.0
    assert reward(ok(None), RewardRule(scheme="staged", allow_untimed=True)) == pytest.approx(0.7)
    # What is not trusted on a GPU is not made a reward by that.
    assert reward(ok(3.0, trusted=False), rule) is None


def test_more_is_never_worth_less() -> None:
    """Along the way from no code to a fast kernel, under every scheme."""
    way = [
        NO_CODE, bad(Status.COMPILE_ERROR, Stage.COMPILE), passed(0, Stage.TINY), passed(1), passed(2), passed(3),
        passed(4), ok(0.1), ok(1.0), ok(1.9),
    ]  # fmt: skip
    for scheme in ("staged", "kevin", "weighted"):
        for weights in PRESETS.values():
            rule = RewardRule.model_validate({"scheme": scheme, "weights": weights})
            worth = [reward(verdict, rule) or 0.0 for verdict in way]
            assert worth == sorted(worth), (scheme, weights)
