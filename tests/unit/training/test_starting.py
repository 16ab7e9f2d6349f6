"""A run that begins with another one's adapter has one of the same shape, or says which setting stands against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray import checkpoints, train
from kb_ray.checkpoints import Checkpoint
from kb_ray.errors import ConfigError
from kb_ray.learn.objective import LoraSettings
from kb_ray.traces.store import LocalStore, open_store
from kb_ray.training import origins, sft_run
from kb_ray.training.rl_settings import GrpoSettings
from kb_ray.training.settings import SftSettings
from kb_ray.training.starting import _NOT_KEPT, shaped

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
    ("there", "named"),
    [(("v_proj", "q_proj"), ("v_proj", "q_proj")), (("q_proj", "v_proj"), ("v_proj", "q_proj")), (ALL, ALL[::-1])],
)
def test_modules_are_the_same_in_any_order(tmp_path: Path, there: tuple[str, ...], named: tuple[str, ...]) -> None:
    begun = {"start_from": adapter(tmp_path / "sft", target_modules=there)}
    found = shaped(SftSettings(**begun, lora_targets=named))
    assert set(lora(found).target_modules) == set(there)
    assert found.fingerprint() == shaped(SftSettings(**begun)).fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_modules": r".*\.q_proj"}, "by a pattern, '.*q_proj'"),
        ({"target_modules": []}, "none of LoRA"),
        ({"target_modules": [1, 2]}, "lora_targets of 1: "),
        ({"target_modules": [1, "q_proj"]}, "none of LoRA"),
        ({"lora_alpha": 0.5}, "lora_alpha of 0.5: "),
        ({"r": 0}, "lora_rank of 0: "),
        ({"r": 100_000}, "lora_rank of 100000: "),
        ({"peft_type": "LOHA"}, "none of LoRA"),
        ({"use_rslora": True, "rank_pattern": {"q_proj": 4}}, "has use_rslora, rank_pattern, which no adapter here"),
        ({"bias": "lora_only"}, "has bias, "),
        ({"init_lora_weights": "pissa_niter_4"}, "has init_lora_weights pissa_niter_4, "),
    ],
)
def test_an_adapter_that_cannot_be_kept_as_it_is_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as told:
        shaped(SftSettings(start_from=adapter(tmp_path / "sft", **changes)))
    assert "\n" not in str(told.value)


def test_what_peft_writes_of_a_plain_adapter_is_none_of_these(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=16, lora_alpha=8, lora_dropout=0.05, task_type="CAUSAL_LM", target_modules=["q_proj"],
        init_lora_weights="gaussian",
    )  # fmt: skip
    config.save_pretrained(tmp_path)
    assert lora(shaped(SftSettings(start_from=str(tmp_path)))).target_modules == ("q_proj",)
    assert set(_NOT_KEPT) <= set(config.to_dict()), "a name that PEFT does not write is never found"


def own_checkpoint(output: Path, rank: int) -> None:
    """As a run leaves it, but for the weights."""
    config = {"r": rank, "lora_alpha": 8, "target_modules": list(ALL)}
    files = {"adapter/adapter_config.json": json.dumps(config).encode(), "state.pt": b"optimizer"}
    checkpoint = Checkpoint(step=3, base_model=GrpoSettings().model_name, fingerprint="f")
    checkpoints.save(open_store(str(output)), checkpoint, files)


def test_a_run_that_goes_on_needs_nothing_of_what_it_began_with(tmp_path: Path) -> None:
    own_checkpoint(tmp_path / "run", 64)
    settings = GrpoSettings(start_from=str(tmp_path / "removed"), output=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match="removed holds no adapter"):
        shaped(settings)
    assert shaped(settings, (settings.output,)).lora_rank == 64
    settings = settings.model_copy(update={"start_from": adapter(tmp_path / "trained again", r=4)})
    assert shaped(settings, (settings.output,)).lora_rank == 64
    assert shaped(settings, (str(tmp_path / "another run"),)).lora_rank == 4


@pytest.mark.parametrize(("command", "below"), [("sft", ""), ("grpo", ""), ("tritonrl", "sft"), ("tritonrl", "rl")])
def test_a_command_started_again_has_the_shape_of_its_own_checkpoint(
    tmp_path: Path, command: str, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_checkpoint(tmp_path / "run" / below, 64)
    begun = list[Any]()

    def begin(settings: Any, *_: Any) -> int:
        begun.append(settings)
        raise ConfigError("far enough")

    monkeypatch.setattr(sft_run, "run", begin)
    monkeypatch.setattr(train, "_reinforced", begin)
    given = ["--start-from", str(tmp_path / "removed"), "--output", str(tmp_path / "run")]
    assert train.main([command, *given]) == 2
    assert [settings.lora_rank for settings in begun] == [64]


class OneFile(LocalStore):
    """A store that is told of what is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.read = list[str]()

    def get(self, key: str) -> bytes | None:
        self.read.append(key.rpartition("/")[2])
        return super().get(key)


def test_of_a_checkpoint_on_s3_neither_weights_nor_optimizer_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_checkpoint(tmp_path, 64)
    store = OneFile(tmp_path)
    monkeypatch.setattr(origins, "open_store", lambda uri: store)
    assert shaped(GrpoSettings(start_from="s3://bucket/run")).lora_rank == 64
    assert store.read == ["checkpoint.json", "adapter_config.json"]


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
