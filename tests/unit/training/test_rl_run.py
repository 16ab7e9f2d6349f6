"""Runs of GRPO and best-of-N with a toy judge: what is written, that a stop changes nothing, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb_ray import checkpoints
from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.learn.stepping import NotFinite, NotTaken, OutOfMemory, StepReport
from kb_ray.records import Episode, Message, Retrieved, Task
from kb_ray.traces.store import LocalStore
from kb_ray.training.openings import Openings
from kb_ray.training.rl_run import Judges, tasks_of, train
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.tries import Opening
from tests.unit.learn import tiny
from tests.unit.learn.test_grpo import TASKS, judge


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def grpo(model: Path, output: Path, **changes: Any) -> GrpoSettings:
    given = {
        "model_name": str(model), "output": str(output), "steps": 6, "group_size": 16, "max_tokens": 8,
        "learning_rate": 2e-2, "lora_rank": 8, "lora_alpha": 16, "lora_dropout": 0.0, "checkpoint_every": 2,
    }  # fmt: skip
    return GrpoSettings.model_validate(given | changes)


def opening(task: Task) -> tuple[tuple[Message, ...], Retrieved | None]:
    return (Message(role="user", content=f"w{task.task_id[-1]}"),), None


async def run(
    settings: GrpoSettings | BestOfNSettings, kept: list[Episode] | None = None, *, opened: Opening = opening,
    say: Callable[[str], None] = lambda line: None,
) -> int:  # fmt: skip
    episodes: list[Episode] = [] if kept is None else kept
    return await train(settings, TASKS, Judges(judge, episodes.append, "r"), opened, say, "cpu")


def told(output: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


async def test_every_attempt_is_kept_with_what_it_took(model: Path, tmp_path: Path) -> None:
    kept: list[Episode] = []
    await run(grpo(model, tmp_path, mode="multi_turn", max_turns=2), kept)
    assert len(kept) == 6 * 4 * 16
    assert len({episode.episode_id for episode in kept}) == len(kept)
    assert {len(episode.turns) for episode in kept} == {2}
    first = kept[0].turns[0]
    assert first.completion.token_ids
    assert len(first.completion.logprobs or ()) == len(first.completion.token_ids)
    assert re.fullmatch(r"r-[0-9a-f]{8}-step000000", first.completion.model)
    assert first.policy_version == first.completion.model


async def test_numbers_are_written_under_the_third_documents_names(model: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    await run(grpo(model, tmp_path))
    lines = told(tmp_path)
    assert [line["step"] for line in lines] == list(range(6))
    assert {"Reward/Mean", "Timing/SaveCheckpoint", "Progress/CompletionFraction", "Progress/LearningRate"} <= set(
        lines[0]
    )
    assert lines[-1]["Progress/CompletionFraction"] == 1.0
    board = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"histograms": 0}).Reload()
    assert "KernelQuality/CheatRate" in board.Tags()["scalars"]
    assert "Distributions/Rewards" in board.Tags()["histograms"]
    assert [event.step for event in board.Histograms("Distributions/Rewards")] == [0, 5]


@pytest.mark.parametrize("stop_at", [1, 3, 4])
async def test_stopped_at_any_batch_it_learns_the_same(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    plain, broken = grpo(model, tmp_path / "plain", curriculum=True), grpo(model, tmp_path / "broken", curriculum=True)
    await run(plain)
    real, calls = Learner.epoch, [0]

    def dies(self: Learner, *arguments: Any) -> list[StepReport]:
        calls[0] += 1
        if calls[0] > stop_at:
            raise KeyboardInterrupt
        return real(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "epoch", dies)
        with pytest.raises(KeyboardInterrupt):
            await run(broken)
    await run(broken)
    for one, other in zip(told(tmp_path / "plain"), told(tmp_path / "broken"), strict=True):
        assert other["Reward/Mean"] == pytest.approx(one["Reward/Mean"])
        assert ("Train/loss" in other) is ("Train/loss" in one)
        assert other.get("Train/loss", 0.0) == pytest.approx(one.get("Train/loss", 0.0), rel=1e-4)


@pytest.mark.parametrize("why", [NotFinite, OutOfMemory])
async def test_a_step_that_is_not_taken_ends_the_run_and_keeps_the_one_before(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: type[NotTaken]
) -> None:
    real = Learner.epoch

    def spoilt(self: Learner, *arguments: Any) -> list[StepReport]:
        if self.steps == 2:
            raise why("step 3: not taken")
        return real(self, *arguments)

    monkeypatch.setattr(Learner, "epoch", spoilt)
    kept: list[Episode] = []
    with pytest.raises(why):
        await run(grpo(model, tmp_path, checkpoint_every=99, steps=40), kept)
    assert len(kept) == 64 * (1 + len(told(tmp_path))), "what was tried for that step too"
    last = checkpoints.latest(LocalStore(str(tmp_path)))
    assert last is not None
    assert last.step == 2


async def test_levels_are_told_apart_unless_they_are_not_wanted(model: Path, tmp_path: Path) -> None:
    await run(grpo(model, tmp_path / "with", steps=1))
    await run(grpo(model, tmp_path / "without", steps=1, tensorboard_log_per_level=False))
    both = [set(told(tmp_path / name)[0]) for name in ("with", "without")]
    assert both[0] - both[1] == {f"PerLevel/{n}/{name}" for n in (1, 2) for name in ("RewardMean", "CorrectRate")}


async def test_best_of_n_is_a_run_of_the_same_kind(model: Path, tmp_path: Path) -> None:
    settings = BestOfNSettings.model_validate(
        grpo(model, tmp_path).model_dump(include={*BestOfNSettings.model_fields}) | {"keep": 2, "max_tokens": 12}
    )
    await run(settings)
    assert sum(line["Samples/Kept"] for line in told(tmp_path)) > 0
    assert checkpoints.steps(LocalStore(str(tmp_path)))


async def test_a_window_without_room_for_an_answer_is_one_line_and_no_run(model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--max-tokens: .* 4096 tokens .* window of 4096 .*: lower it to \d+ or less"
    ):
        await run(grpo(model, tmp_path, max_tokens=4096))
    assert not (tmp_path / "metrics.jsonl").exists()
    with pytest.raises(ConfigError, match=r"--max-tokens: .* or on shorter tasks"):
        await run(grpo(model, tmp_path), opened=lambda task: (opening_of(5000), None))


async def test_tries_that_the_window_ends_are_counted_and_told(model: Path, tmp_path: Path) -> None:
    """Of four tasks one is too long: the others are learned from."""
    kept, said = list[Episode](), list[str]()
    await run(
        grpo(model, tmp_path, steps=1), kept, say=said.append,
        opened=lambda task: (opening_of(5000 if task.task_id == "toy/2" else 1), None),
    )  # fmt: skip
    assert [episode.task.task_id for episode in kept if not episode.turns] == ["toy/2"] * 16
    assert told(tmp_path)[0]["Rollouts/EndedByWindow"] == 16.0
    assert said[-1].endswith("; 16 tries ended by the model's window")


def opening_of(words: int) -> tuple[Message, ...]:
    return (Message(role="user", content="w1 " * words),)


def test_defaults_are_the_documents() -> None:
    third, second = GrpoSettings(), BestOfNSettings()
    assert (third.batch_size, third.group_size, third.learning_rate, third.lora_rank, third.max_tokens) == (
        4,
        4,
        1e-4,
        32,
        4096,
    )
    assert (third.temperature, third.mode, third.max_turns, third.gamma, third.level) == (
        1.0,
        "single_turn",
        4,
        0.4,
        (1,),
    )
    assert (third.rule().max_turns, GrpoSettings(mode="multi_turn").rule().max_turns) == (1, 4)
    assert (second.group_size, second.keep, second.lora_rank) == (10, 3, 16)
    assert (third.curriculum_start_p, third.curriculum_end_p, third.curriculum_trigger_threshold) == (0.1, 0.5, 0.4)


def test_what_cannot_be_used_is_one_line(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rag-index-path"):
        Openings(grpo(model, tmp_path, prompt_option="raicl"), "cpu")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "broken.py").write_text("def (")
    skipped: list[str] = []
    with pytest.raises(ConfigError, match="no task"):
        tasks_of(grpo(model, tmp_path, tasks=(f"folder:{tmp_path / 'tasks'}",)), skipped.append)
    assert "broken.py" in skipped[0]
