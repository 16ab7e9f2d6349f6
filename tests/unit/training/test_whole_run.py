"""SFT and then best-of-N as one run: the second begins with what the first learned, and neither is done twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray import checkpoints, train
from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.learn.stepping import StepReport
from kb_ray.traces.store import open_store
from kb_ray.training import rl_command, rl_run, whole_run
from kb_ray.training.rl_settings import BestOfNSettings
from kb_ray.training.whole_settings import WholeSettings
from tests.unit.learn import tiny
from tests.unit.learn.test_grpo import TASKS, judge
from tests.unit.training.test_learning_pairs import HAND, write
from tests.unit.training.test_rl_run import opening


def settings(folder: Path, **changes: Any) -> WholeSettings:
    data = write(folder / "rows.jsonl", *[HAND] * 6)
    model = folder / "model"
    given = {
        "model_name": str(model if model.exists() else tiny.make_model(model)), "output": str(folder / "run"),
        "data": (f"file:{data}",), "steps": 3, "group_size": 16, "keep": 2, "max_tokens": 12, "learning_rate": 2e-2,
        "lora_rank": 8, "checkpoint_every": 1, "tensorboard_enabled": False, "allow_untimed": True,
    }  # fmt: skip
    return WholeSettings.model_validate(given | changes)


async def best_of_n(second: BestOfNSettings) -> int:
    """With a toy judge in place of Ray."""
    judges = rl_run.Judges(judge, lambda episode: None, "r")
    return await rl_run.train(second, TASKS, judges, opening, print, "cpu")


def step_of(folder: Path) -> int | None:
    found = checkpoints.latest(open_store(str(folder)))
    return found.step if found else None


async def test_the_second_stage_begins_with_what_the_first_learned(tmp_path: Path, begun: list[str]) -> None:
    steps = await whole_run.run(settings(tmp_path), best_of_n, print, "cpu")
    assert begun == [str(tmp_path / "run" / "sft")]
    assert step_of(tmp_path / "run" / "sft") == 3
    assert step_of(tmp_path / "run" / "rl") == steps - 3 > 0


async def test_stopped_anywhere_it_goes_on_with_the_stage_it_was_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, real, taken = settings(tmp_path), Learner.epoch, list[int]()

    def dies_at(count: int) -> Any:
        def epoch(self: Learner, *arguments: Any, **more: Any) -> list[StepReport]:
            if len(taken) == count:
                raise KeyboardInterrupt
            taken.append(self.steps)
            return real(self, *arguments, **more)

        return epoch

    for count in (2, 4):
        with monkeypatch.context() as patched:
            patched.setattr(Learner, "epoch", dies_at(count))
            with pytest.raises(KeyboardInterrupt):
                await whole_run.run(whole, best_of_n, print, "cpu")
    monkeypatch.setattr(Learner, "epoch", dies_at(-1))
    await whole_run.run(whole, best_of_n, print, "cpu")
    # Of SFT each step once; of best-of-N each that was kept.
    assert taken[:4] == [0, 1, 2, 0]
    lines = (tmp_path / "run" / "rl" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]


async def test_a_stage_can_be_asked_for_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run/sft holds no adapter"):
        await whole_run.run(settings(tmp_path, stage="rl"), best_of_n, print, "cpu")

    async def never(second: BestOfNSettings) -> int:
        raise AssertionError("best-of-N was not asked for")

    assert await whole_run.run(settings(tmp_path, stage="sft"), never, print, "cpu") == 3
    assert await whole_run.run(settings(tmp_path, stage="rl"), best_of_n, print, "cpu") > 0


def test_the_command_starts_as_the_second_document_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[BestOfNSettings] = []

    async def run(second: BestOfNSettings, command: str, say: Any) -> int:
        asked.append(second)
        return 7

    monkeypatch.setattr(rl_command, "run", run)
    whole = settings(tmp_path)
    given = [f"{name}={getattr(whole, name)}" for name in ("model_name", "output", "lora_rank", "learning_rate")]
    assert train.main(["--stage", "all", *given, "--data", whole.data[0], "--no-tensorboard-enabled"]) == 0
    assert asked == [asked[0]]
    assert (asked[0].start_from, asked[0].group_size, asked[0].keep) == (str(tmp_path / "run" / "sft"), 10, 3)
    assert f"--model-path {tmp_path / 'run' / 'rl'}" in capsys.readouterr().out
    assert train.main(["--stage", "everything"]) == 2
    assert "--stage: must be one of" in capsys.readouterr().err
