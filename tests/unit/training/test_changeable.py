"""What messages tell to change can be changed as they say: in the same output, or under another one with what it
learned."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kb_ray import checkpoints
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.learn.generating import Drawing
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings
from kb_ray.learn.stepping import OutOfMemory
from kb_ray.traces.store import open_store
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.settings import SftSettings, TrainSettings
from kb_ray.training.whole_settings import WholeSettings
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import SAMPLES, SFT
from tests.unit.training.test_rl_run import grpo, run, told

OTHER: dict[str, Any] = {
    "batch_tokens": 7, "gradient_checkpointing": True, "rollout_tokens": 7, "max_tokens": 77, "sft_max_tokens": 77,
    "learning_rate": 1e-7, "load_in_8bit": True, "model_name": "another", "vllm_url": "http://host:8000/v1",
    "adapters_path": "s3://bucket/lora",
}  # fmt: skip
"""Every setting that a message names, with another value than its default."""
MAY_CHANGE = {
    "steps": 7, "bench_workers": 7, "bench_concurrency": 7, "skip_corrupt": True, "train_workers": 2,
    "checkpoint_every": 7, "keep_checkpoints": 7,
}  # fmt: skip
"""Others that decide nothing of what is learned."""
KINDS = (SftSettings, BestOfNSettings, GrpoSettings, WholeSettings)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def full(*_: object, **__: object) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")


def messages(model: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> Iterator[str]:
    """All that a learner says which settings to change, after so many steps."""
    learner = tiny.learner(model)
    for _ in range(steps):
        learner.step(SAMPLES, SFT)
    failures: list[Any] = [
        lambda: learner.step([replace(SAMPLES[0], advantage=math.inf)], SFT),
        lambda: learner.step(SAMPLES, SFT),
        lambda: learner.step(SAMPLES[:1], SFT),
        lambda: learner.draw([(7,), (8,)], Drawing(1.0, 2, 100), {2}, 0),
        lambda: learner.draw([(7,)], Drawing(1.0, 2, 100), {2}, 0),
        lambda: Learner(LearnerSettings(model=str(model)), device="cuda"),
    ]
    for number, fails in enumerate(failures):
        with monkeypatch.context() as patched:
            if number:
                patched.setattr(Learner, "_forward", full)
                patched.setattr("kb_ray.learn.learner.draw", full)
                patched.setattr("peft.PeftModel.to", full)
            with pytest.raises(KbRayError) as caught:
                fails()
        yield str(caught.value)


def fingerprints(settings: TrainSettings) -> list[str]:
    """Of the outputs that a command has."""
    whole = isinstance(settings, WholeSettings)
    return [part.fingerprint() for part in ((settings.sft(), settings.best_of_n()) if whole else (settings,))]


def decides(name: str, value: Any) -> bool:
    """Whether an output is refused where a setting has another value; KeyError where commands disagree."""
    found = {fingerprints(kind()) != fingerprints(kind(**{name: value})) for kind in KINDS if name in kind.model_fields}
    (one,) = found
    return one


@pytest.mark.parametrize("steps", [0, 1])
def test_each_setting_that_a_message_names_can_be_changed_as_it_says(
    model: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    named = set[str]()
    for message in messages(model, monkeypatch, steps):
        advised = set[str]()
        for clause in message.split("; "):
            flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z0-9-]+)", clause)}
            for name in flags - {"output", "start_from"}:
                advised.add(name)
                assert decides(name, OTHER[name]) is ("output" in flags), f"{name}: {message}"
            if "model_name" in flags:
                assert "start_from" not in flags, f"an adapter is for one model alone: {message}"
            elif "output" in flags:
                # What it begins with is there: a checkpoint is kept where a step was taken.
                assert ("start_from" in flags) is (steps > 0 or "where it has a checkpoint" in clause), message
            elif flags:
                assert "this output goes on" in clause, message
        assert advised, f"a message names no setting: {message}"
        named |= advised
    assert named == set(OTHER)


@pytest.mark.parametrize("name", MAY_CHANGE)
def test_what_decides_nothing_of_what_is_learned_may_change_from_start_to_start(name: str) -> None:
    assert not decides(name, MAY_CHANGE[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 7), ("learning_rate", 1e-7), ("lora_rank", 8), ("group_size", 7), ("gamma", 0.9), ("epochs", 7),
     ("timeout", 7), ("n_correctness", 7), ("max_staleness", 7)],
)  # fmt: skip
def test_what_decides_it_may_not(name: str, value: Any) -> None:
    assert decides(name, value)


async def test_a_run_whose_answers_did_not_fit_goes_on_with_fewer_at_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, real = grpo(model, tmp_path, steps=4, checkpoint_every=1), Learner.draw

    def too_large(self: Learner, *arguments: Any) -> Any:
        with monkeypatch.context() as patched:
            if self.steps:
                patched.setattr("kb_ray.learn.learner.draw", full)
            return real(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "draw", too_large)
        with pytest.raises(OutOfMemory, match=r"lower --rollout-tokens, now 65536: this output goes on with it"):
            await run(settings)
    before = checkpoints.latest(open_store(str(tmp_path)))
    assert before is not None
    await run(settings.model_copy(update={"rollout_tokens": 100, "bench_workers": 3}))
    assert [line["step"] for line in told(tmp_path)] == [0, 1, 2, 3]


async def test_a_run_that_is_over_goes_on_with_more_batches(model: Path, tmp_path: Path) -> None:
    settings = grpo(model, tmp_path, steps=2)
    await run(settings)
    await run(settings.model_copy(update={"steps": 5}))
    assert [line["step"] for line in told(tmp_path)] == [0, 1, 2, 3, 4]


async def test_a_lower_learning_rate_takes_another_output_that_begins_with_this_one(
    model: Path, tmp_path: Path
) -> None:
    settings = grpo(model, tmp_path / "run", steps=2)
    await run(settings)
    lower = {"learning_rate": 1e-4}
    with pytest.raises(ConfigError, match=rf"--output, with --start-from {tmp_path}/run to begin with what it learned"):
        await run(settings.model_copy(update=lower))
    other = {"output": str(tmp_path / "other"), "start_from": str(tmp_path / "run")}
    await run(settings.model_copy(update=lower | other))
    assert len(told(tmp_path / "other")) == 2


async def test_a_smaller_model_begins_anew_under_another_output(model: Path, tmp_path: Path) -> None:
    await run(grpo(model, tmp_path / "run", steps=1))
    smaller = grpo(tiny.make_model(tmp_path / "smaller", hidden=16), tmp_path / "other", steps=1)
    with pytest.raises(ConfigError, match="was trained on"):
        await run(smaller.model_copy(update={"start_from": str(tmp_path / "run")}))
    await run(smaller)
    assert len(told(tmp_path / "other")) == 1
