"""A run that begins with another one's adapter has one of the same shape, or says which setting stands against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray.errors import ConfigError
from kb_ray.learn.objective import LoraSettings
from kb_ray.training.rl_settings import GrpoSettings
from kb_ray.training.settings import SftSettings
from kb_ray.training.starting import shaped

ALL = LoraSettings().target_modules


def adapter(folder: Path, **changes: Any) -> str:
    """A folder as PEFT leaves it, but for the weights; its modules stand in any order there."""
    folder.mkdir()
    config = {"r": 16, "lora_alpha": 8, "target_modules": list(reversed(ALL))} | changes
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


def lora(settings: SftSettings | GrpoSettings) -> LoraSettings:
    return settings.learning(None).lora


def test_what_is_not_named_is_taken_from_the_adapter(tmp_path: Path) -> None:
    assert GrpoSettings().lora_rank != 16
    found = lora(shaped(GrpoSettings(start_from=adapter(tmp_path / "all"))))
    assert (found.rank, found.alpha, set(found.target_modules)) == (16, 8, set(ALL))
    some = adapter(tmp_path / "some", target_modules=["v_proj", "q_proj"])
    assert lora(shaped(SftSettings(start_from=some))).target_modules == ("q_proj", "v_proj")


def test_the_same_by_name_is_the_same_run(tmp_path: Path) -> None:
    begun = {"start_from": adapter(tmp_path / "sft", r=32, lora_alpha=32)}
    named = shaped(GrpoSettings(**begun, lora_rank=32, lora_alpha=32))
    assert named.fingerprint() == shaped(GrpoSettings(**begun)).fingerprint() == GrpoSettings(**begun).fingerprint()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lora_rank": 32}, "--lora-rank: 32, and the adapter at .* has 16: leave --lora-rank out"),
        ({"lora_alpha": 16}, "--lora-alpha: 16, and the adapter at .* has 8"),
        ({"lora_targets": ("q_proj",)}, "--lora-targets: q_proj, and the adapter at .* has all projections"),
    ],
)
def test_another_shape_by_name_is_refused_in_one_line(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        shaped(SftSettings(start_from=adapter(tmp_path / "sft"), **given))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ("[]", "none of LoRA"),
        ('{"r": 8, "lora_alpha": 8, "target_modules": null}', "none of LoRA"),
    ],
)
def test_settings_of_an_adapter_that_make_no_sense_are_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(ConfigError, match=message) as told:
        shaped(SftSettings(start_from=str(tmp_path)))
    assert "\n" not in str(told.value)


def test_nothing_there_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no adapter"):
        shaped(SftSettings(start_from=str(tmp_path)))
    assert shaped(SftSettings()) == SftSettings()
