"""How many conversations a step of SFT has: of all processes together, or for each of them as the documents say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kb_ray.config_sources import build_parser, parse_command
from kb_ray.errors import ConfigError
from kb_ray.training import sft_run
from kb_ray.training.settings import SftSettings
from kb_ray.training.whole_settings import WholeSettings
from tests.unit.learn import tiny
from tests.unit.training.test_learning_pairs import HAND, write

KINDS = [SftSettings, WholeSettings]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sft(kind: type[Any], *given: str) -> SftSettings:
    found = parse_command(kind, given, prog="train")
    return found.sft() if isinstance(found, WholeSettings) else found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("given", "size"),
    [
        ((), 2),
        (("train_workers=8",), 2),
        (("per_device_batch_size=2",), 2),
        (("per_device_batch_size=2", "train_workers=8"), 16),
        (("model_config.per_device_batch_size=3", "--train-workers", "2"), 6),
    ],
)
def test_what_is_said_of_each_process_counts_for_each(kind: type[Any], given: tuple[str, ...], size: int) -> None:
    found = sft(kind, *given)
    assert (found.step_size(), found.rule().batch_size) == (size, size)


@pytest.mark.parametrize(("kind", "name"), [(SftSettings, "batch_size"), (WholeSettings, "sft_batch_size")])
def test_the_plain_size_is_the_whole_steps_and_not_given_beside_the_other(kind: type[Any], name: str) -> None:
    assert sft(kind, f"{name}=16", "train_workers=8").step_size() == 16
    flag = "--" + name.replace("_", "-")
    with pytest.raises(ConfigError, match=f"per_device_batch_size: give this or {flag}, not both") as caught:
        sft(kind, f"{name}=2", "per_device_batch_size=2")
    assert "\n" not in str(caught.value)
    text = " ".join(build_parser(kind, "train").format_help().split())
    assert "of all --train-workers together. [default: 2;" in text
    assert f"In place of {flag}: conversations of one" in text


def test_a_run_is_known_by_how_large_its_steps_are_not_by_who_takes_them() -> None:
    whole, shared = SftSettings(batch_size=16), SftSettings(per_device_batch_size=2, train_workers=8)
    assert shared.fingerprint() == whole.fingerprint() == SftSettings(batch_size=16, train_workers=4).fingerprint()
    assert shared.fingerprint() != SftSettings(per_device_batch_size=2, train_workers=4).fingerprint()
    assert SftSettings().fingerprint() == SftSettings(batch_size=2).fingerprint()


def test_processes_without_a_conversation_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = tiny.make_model(tmp_path / "model"), write(tmp_path / "rows.jsonl", *[HAND] * 4)

    @contextmanager
    def alone(settings: SftSettings) -> Iterator[None]:
        yield

    monkeypatch.setattr(sft_run, "_together", alone)
    monkeypatch.setattr(sft_run, "learner_of", lambda settings, device: tiny.learner(model))
    given = {"model_name": str(model), "data": (f"file:{data}",), "lora_rank": 8, "tensorboard_enabled": False}
    told = {}
    for name, size in (("few", {}), ("each", {"per_device_batch_size": 1})):
        said = list[str]()
        settings = SftSettings.model_validate(
            given | size | {"output": str(tmp_path / name), "train_workers": 4, "lora_alpha": 16, "lora_dropout": 0.0}
        )
        sft_run.run(settings, said.append)
        told[name] = [line for line in said if line.startswith("workers:")]
    assert told["each"] == []
    assert len(told["few"]) == 1
    assert "2 of 4 learn from nothing, as a step has 2 conversations" in told["few"][0]
