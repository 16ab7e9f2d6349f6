"""What TensorBoard itself reads back from what an evaluation logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kb_ray.errors import ConfigError
from kb_ray.evaluation import board
from kb_ray.learn.metrics import of_rollouts
from kb_ray.learn.rollouts import Try
from kb_ray.learn.samples import Step
from kb_ray.records import Episode, Status, StopReason
from kb_ray.refine import Finish, Policy, State
from kb_ray.score.metrics import summarise_outcomes
from kb_ray.score.outcomes import outcome
from tests.unit.score.episodes import NO_CODE, bad, episode, ok

FOUND = [
    outcome(item)
    for item in (
        episode("a", bad(), ok(2.0)),
        episode("b", bad(Status.HACK)),
        episode("c", ok(0.5), level=2),
        episode("z", ok(9.0), flags=["zeros_pass"]),
    )
]


def test_tensorboard_shows_metrics_and_histograms_at_the_step(tmp_path: Path) -> None:
    board.log(str(tmp_path), 100, summarise_outcomes(FOUND), FOUND)
    read = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0})
    read.Reload()
    shown = {tag: read.Scalars(tag) for tag in read.Tags()["scalars"]}
    assert {event.step for events in shown.values() for event in events} == {100}
    values = {tag: events[0].value for tag, events in shown.items()}
    assert values["Eval/KernelQuality/CorrectRate"] == pytest.approx(2 / 4)
    assert values["Eval/BestOfTurns/CorrectRate"] == pytest.approx(2 / 3)
    assert values["Eval/KernelQuality/CheatRate"] == pytest.approx(1 / 4)
    assert values["Eval/Reward/Mean"] == pytest.approx((1.0 + 0.0 + 0.775) / 3)
    assert values["Eval/PerLevel/2/RewardMean"] == pytest.approx(0.775)
    assert values["Eval/fast_p/1"] == pytest.approx(1 / 3)
    assert values["Eval/pass_at_k/1"] == pytest.approx(2 / 3)
    assert values["Eval/multiturn/success_rate"] == pytest.approx(2 / 3)
    assert values["Eval/multiturn/correct_rate"] == pytest.approx(2 / 4)
    assert values["Eval/multiturn/turn_2/correct_rate"] == 1.0
    assert set(read.Tags()["histograms"]) == {"Eval/Distributions/Rewards", "Eval/Distributions/Speedups"}
    assert read.Histograms("Eval/Distributions/Speedups")[0].histogram_value.num == 2


def as_try(found: Episode) -> Try:
    """The same episode as training holds it."""
    state = State(task=found.task, policy=Policy(), messages=(), turns=found.turns, phase="finished")
    end = Finish(stop_reason=StopReason.MAX_TURNS, best_turn=found.best_turn, error=None)
    return Try(state, end, 0, [Step((), (), None, 0.0) for _ in found.turns])


def test_what_training_logs_under_the_same_name_is_the_same_number() -> None:
    """But rewards, which training counts by its own settings."""
    found = [
        episode("a", bad(), ok(2.0), bad(Status.COMPILE_ERROR)),
        episode("b", NO_CODE, bad(Status.HACK)),
        episode("c", ok(0.5), bad(), level=2),
        episode("d", stop=StopReason.CONTEXT),
    ]
    outcomes = [outcome(item) for item in found]
    logged = board.scalars(summarise_outcomes(outcomes), outcomes)
    trained = of_rollouts([[as_try(item)] for item in found])
    names = {name for name in trained if "eward" not in name}
    assert {f"KernelQuality/{name}Rate" for name in ("Format", "Compile", "Correct", "Cheat")} <= names
    assert {name: logged[f"Eval/{name}"] for name in names} == pytest.approx({name: trained[name] for name in names})


def test_what_is_not_defined_is_not_logged() -> None:
    found = [outcome(episode("a", ok(None)))]
    names = set(board.scalars(summarise_outcomes(found), found))
    assert "Eval/fast_p/0" in names
    assert "Eval/fast_p/1" not in names
    assert "Eval/Speedup/Mean" not in names


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--tensorboard-log-dir"):
        board.log(str(tmp_path / "file"), 0, summarise_outcomes(FOUND), FOUND)
