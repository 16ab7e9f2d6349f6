"""Runs that learn at Tinker's service: kept, gone on with and evaluated like any other; what cannot be asked there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb_ray import checkpoints
from kb_ray.errors import ConfigError
from kb_ray.learn.tinker import TinkerFailure
from kb_ray.traces.store import open_store
from kb_ray.training import rl_run, sft_run
from kb_ray.training.learners import learner_of
from kb_ray.training.rl_settings import GrpoSettings
from kb_ray.training.settings import SftSettings
from tests.unit.learn.test_grpo import TASKS, judge
from tests.unit.learn.tinker_server import Service, running
from tests.unit.training.test_learning_pairs import HAND, write
from tests.unit.training.test_rl_run import opening


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with running(tmp_path, monkeypatch) as found:
        yield found


def given(service: Service, output: Path, **changes: Any) -> dict[str, Any]:
    return {
        "model_name": str(service.model), "output": str(output), "learner": "tinker", "lora_rank": 8,
        "learning_rate": 1e-2, "checkpoint_every": 1, "tensorboard_enabled": False,
    } | changes  # fmt: skip


def losses(output: Path) -> list[float]:
    return [json.loads(line)["Train/loss"] for line in (output / "metrics.jsonl").read_text().splitlines()]


def test_sft_there_goes_on_after_a_failure_and_leaves_an_adapter(service: Service, tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", *[HAND] * 4)
    more = {"data": (f"file:{data}",), "epochs": 2}
    plain, broken = (
        SftSettings.model_validate(given(service, tmp_path / name, **more)) for name in ("plain", "broken")
    )
    assert sft_run.run(plain, print) == 4
    real, taken = service._optim_step, [0]

    def once_in_vain(*arguments: Any) -> dict[str, Any]:
        taken[0] += 1
        if taken[0] == 3:
            raise RuntimeError("lost")
        return real(*arguments)

    service._optim_step = once_in_vain  # type: ignore[method-assign]
    with pytest.raises(TinkerFailure, match=r"failed while taking step 3: .*lost"):
        sft_run.run(broken, print)
    assert sft_run.run(broken, print) == 4
    assert losses(tmp_path / "broken") == pytest.approx(losses(tmp_path / "plain"), rel=1e-4)
    assert "Train/gradient_norm" not in (tmp_path / "plain" / "metrics.jsonl").read_text()
    folder = checkpoints.adapter_folder(tmp_path / "plain")
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= {p.name for p in folder.iterdir()}
    assert service.asked.count("sessions/s/finish") == 3


async def test_grpo_there_draws_learns_and_begins_with_another_run(service: Service, tmp_path: Path) -> None:
    more = {"steps": 3, "group_size": 16, "max_tokens": 12, "batch_size": 2}
    settings = GrpoSettings.model_validate(given(service, tmp_path / "run", **more))
    judges = rl_run.Judges(judge, lambda episode: None, "r")
    steps = await rl_run.train(settings, TASKS, judges, opening, print)
    assert steps == service.asked.count("optim_step") > 0
    last = checkpoints.latest(open_store(settings.output))
    assert last is not None
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("Train/mismatch", 0.0) for line in lines) < 1e-4
    second = settings.model_copy(update={"output": str(tmp_path / "second"), "start_from": settings.output})
    before = service.asked.count("create_model")
    await rl_run.train(second, TASKS, judges, opening, print)
    assert service.asked.count("create_model") == before
    assert "load_weights" in service.asked


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kl_beta": 0.1}, "--kl-beta: Tinker"),
        ({"temperature": 0.7}, "--temperature: Tinker"),
        ({"load_in_8bit": True}, "--load-in-8bit: Tinker"),
        ({"train_workers": 2}, "--train-workers: Tinker"),
    ],
)
def test_what_cannot_be_asked_there_is_one_line(
    service: Service, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        learner_of(GrpoSettings.model_validate(given(service, tmp_path, **changes)))
    assert service.asked == []
