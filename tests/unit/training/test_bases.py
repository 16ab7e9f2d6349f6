"""An adapter is put on the base model that it was trained on and on no other, wherever that lies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kb_ray import checkpoints
from kb_ray.checkpoints import Checkpoint
from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.learn.network import base_weights
from kb_ray.learn.objective import LearnerSettings, LoraSettings
from kb_ray.traces.store import LocalStore
from kb_ray.training import keeping
from kb_ray.training.bases import refuse_others_adapter
from kb_ray.training.rl_settings import GrpoSettings
from kb_ray.training.settings import SftSettings
from kb_ray.training.starting import shaped
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import SAMPLES, SFT, weights

INSTRUCT, CODER = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-Coder-7B-Instruct"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same shape: its config.json is the same, its weights are not."""
    return tiny.make_model(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture
def trained(model: Path, tmp_path: Path) -> LocalStore:
    store, learner = LocalStore(str(tmp_path / "run")), tiny.learner(model)
    learner.step(SAMPLES, SFT)
    keeping.save(store, learner, "f", {})
    return store


def forget_weights(store: LocalStore) -> None:
    """The checkpoint as it was written before there were fingerprints of weights."""
    mark = Path(store.uri) / "checkpoints" / "step000001" / "checkpoint.json"
    told = json.loads(mark.read_text())
    del told["base_weights"]
    mark.write_text(json.dumps(told))


def test_a_run_is_not_gone_on_with_on_other_weights_of_the_same_shape(
    trained: LocalStore, model: Path, other: Path
) -> None:
    assert checkpoints.base_hash(str(model)) == checkpoints.base_hash(str(other))
    with pytest.raises(ConfigError, match=rf"step 1 was trained on {model}, not on {other}") as caught:
        keeping.resume(trained, tiny.learner(other), "f")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("below", ["", "checkpoints/step000001", "checkpoints/step000001/adapter"])
def test_no_run_begins_with_the_adapter_of_another_base_model(
    trained: LocalStore, model: Path, other: Path, below: str
) -> None:
    learner, path = tiny.learner(other), f"{trained.uri}/{below}".rstrip("/")
    before = weights(learner).clone()
    with pytest.raises(ConfigError, match=rf"--start-from: .* trained on {model}, not on {other}: give --model-name"):
        keeping.start_from(learner, path)
    assert torch.equal(weights(learner), before)
    keeping.start_from(tiny.learner(model), path)


def test_weights_that_changed_under_the_same_name_are_told(trained: LocalStore, other: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(tiny.make_model(tmp_path / "first"), place)
    store, learner = LocalStore(str(tmp_path / "second")), tiny.learner(place)
    learner.step(SAMPLES, SFT)
    keeping.save(store, learner, "f", {})
    shutil.copytree(other, place, dirs_exist_ok=True)
    with pytest.raises(ConfigError, match=rf"--model-name {place} stands for now is another \(weights\)"):
        keeping.start_from(tiny.learner(place), store.uri)
    with pytest.raises(ConfigError, match=r"the model that lies there now \(weights\)"):
        keeping.resume(store, tiny.learner(place), "f")


def test_a_checkpoint_from_before_there_were_fingerprints_is_read(
    trained: LocalStore, model: Path, tmp_path: Path
) -> None:
    forget_weights(trained)
    assert keeping.resume(trained, tiny.learner(model), "f") is not None
    keeping.start_from(tiny.learner(model), trained.uri)
    with pytest.raises(ConfigError, match="trained on"):
        keeping.start_from(tiny.learner(tiny.make_model(tmp_path / "wider", hidden=48)), trained.uri)


def test_the_same_model_at_another_place_is_the_same(trained: LocalStore, model: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(model, tmp_path / "moved"))
    keeping.start_from(tiny.learner(moved), trained.uri)
    # As one on the hub is, whose config.json is not looked for.
    named = checkpoints.read(trained, 1).model_copy(update={"base_model": "org/model", "base_hash": None})
    trained.replace("checkpoints/step000001/checkpoint.json", named.model_dump_json().encode())
    keeping.start_from(tiny.learner(moved), trained.uri)
    assert keeping.resume(trained, tiny.learner(moved), "f") is not None
    forget_weights(trained)
    with pytest.raises(ConfigError, match="trained on org/model, not on"):
        keeping.start_from(tiny.learner(moved), trained.uri)


def test_config_alone_says_nothing_before_weights_are_compared(
    trained: LocalStore, model: Path, tmp_path: Path
) -> None:
    anew = Path(shutil.copytree(model, tmp_path / "anew"))
    told = json.loads((anew / "config.json").read_text())
    (anew / "config.json").write_text(json.dumps(told | {"a_later_versions": "setting"}))
    assert shaped(SftSettings(model_name=str(anew), start_from=trained.uri)).lora_rank == 8
    keeping.start_from(tiny.learner(anew), trained.uri)
    assert keeping.resume(trained, tiny.learner(anew), "f") is not None
    forget_weights(trained)
    with pytest.raises(ConfigError, match="trained on"):
        shaped(SftSettings(model_name=str(anew), start_from=trained.uri))


def fingerprints(model: Path, dtype: torch.dtype = torch.float32, **settings: Any) -> dict[str, str]:
    return base_weights(tiny.learner(model, **settings).network.to(dtype))


def test_how_weights_are_held_and_where_an_adapter_is_change_no_fingerprint(model: Path, other: Path) -> None:
    plain = fingerprints(model)
    assert plain.keys() == {"embeddings", "matrices"}
    rounded = tiny.learner(model).network.to(torch.bfloat16)
    assert base_weights(rounded) == base_weights(rounded.float()) == plain == fingerprints(model, torch.bfloat16)
    few = LearnerSettings(model=str(model), lora=LoraSettings(rank=2, target_modules=("q_proj", "embed_tokens")))
    assert base_weights(Learner(few, device="cpu").network) == plain
    assert all(plain[part] != value for part, value in fingerprints(other).items())


def test_an_adapter_that_was_merged_into_its_base_is_another_model(model: Path, tmp_path: Path) -> None:
    """It changes neither embeddings nor norms."""
    learner = tiny.learner(model)
    before = base_weights(learner.network)
    for _ in range(5):
        learner.step(SAMPLES, SFT)
    assert base_weights(learner.network) == before
    learner.network.merge_and_unload().save_pretrained(tmp_path / "merged")
    tiny.tokenizer().save_pretrained(tmp_path / "merged")
    after = fingerprints(tmp_path / "merged")
    assert after["embeddings"] == before["embeddings"]
    assert after["matrices"] != before["matrices"]


def test_of_a_quantized_model_what_is_not_quantized_is_compared(trained: LocalStore, model: Path, other: Path) -> None:
    def quantized(folder: Path) -> Learner:
        learner = tiny.learner(folder)
        layer = learner.network.get_base_model().model.layers[0].mlp.up_proj.base_layer
        layer.weight = torch.nn.Parameter(layer.weight.data.to(torch.int8), requires_grad=False)
        return learner

    assert base_weights(quantized(model).network).keys() == {"embeddings"}
    keeping.start_from(quantized(model), trained.uri)
    with pytest.raises(ConfigError, match="trained on"):
        keeping.start_from(quantized(other), trained.uri)


def folder_of(path: Path, config: str) -> str:
    path.mkdir(parents=True)
    (path / "config.json").write_text(config)
    return str(path)


@pytest.mark.parametrize(
    ("theirs", "ours", "refused"),
    [
        (INSTRUCT, CODER, True),
        (CODER, CODER, False),
        ("unsloth/Qwen2.5-Coder-7B-Instruct", CODER, False),
        ("/cache/models--Qwen--Qwen2.5-7B-Instruct/snapshots/a1", CODER, True),
        ("/cache/models--Qwen--Qwen2.5-Coder-7B-Instruct/snapshots/a1", CODER, False),
        # A folder of another machine may hold any model, and so may one that is here.
        ("/home/them/model", CODER, False),
        (INSTRUCT, "{a}", False),
        ("{a}", CODER, False),
        ("{a}", "{copy}", False),
        ("{a}", "{b}", True),
        (None, CODER, False),
        ("", CODER, False),
    ],
)
def test_a_plain_adapter_is_refused_where_it_is_certainly_for_another_model(
    tmp_path: Path, theirs: str | None, ours: str, refused: bool
) -> None:
    places = {name: folder_of(tmp_path / name, text) for name, text in (("a", "{}"), ("copy", "{}"), ("b", "[]"))}
    config = {"base_model_name_or_path": theirs.format(**places) if theirs is not None else None}
    if not refused:
        refuse_others_adapter("runs/a", config, ours.format(**places))
        return
    with pytest.raises(
        ConfigError, match=r"--start-from: the adapter at runs/a is for .*: give --model-name"
    ) as caught:
        refuse_others_adapter("runs/a", config, ours.format(**places))
    assert config["base_model_name_or_path"] in str(caught.value)
    assert ours.format(**places) in str(caught.value)


def plain_adapter(folder: Path, base: str) -> str:
    folder.mkdir()
    config = {"r": 16, "lora_alpha": 8, "target_modules": ["q_proj"], "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


def test_it_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    begun = {"start_from": plain_adapter(tmp_path / "theirs", INSTRUCT)}
    with pytest.raises(ConfigError, match=f"is for {INSTRUCT}, not for {CODER}"):
        shaped(GrpoSettings(**begun))
    assert shaped(GrpoSettings(**begun, model_name=INSTRUCT)).lora_targets == ("q_proj",)


@pytest.mark.parametrize(("known", "refused"), [({}, True), ({"embeddings": "e"}, False)])
def test_of_our_own_a_name_says_so_only_where_weights_will_not(
    tmp_path: Path, known: dict[str, str], refused: bool
) -> None:
    config = json.dumps({"r": 16, "lora_alpha": 8, "target_modules": ["q_proj"]}).encode()
    checkpoint = Checkpoint(step=3, base_model=INSTRUCT, base_weights=known, fingerprint="f")
    checkpoints.save(LocalStore(str(tmp_path / "sft")), checkpoint, {"adapter/adapter_config.json": config})
    settings = SftSettings(start_from=str(tmp_path / "sft"))
    if refused:
        with pytest.raises(ConfigError, match=f"trained on {INSTRUCT}, not on {CODER}: give --model-name {INSTRUCT}"):
            shaped(settings)
    # It is asked of the adapter to begin with, never of the run's own: `keeping.resume` does that.
    assert shaped(settings, (settings.start_from or "",)).lora_rank == 16
    if not refused:
        assert shaped(settings).lora_rank == 16


def test_a_plain_adapter_is_refused_also_where_only_a_learner_is_given(model: Path, tmp_path: Path) -> None:
    for name, data in tiny.learner(model).adapter().items():
        (tmp_path / name).write_bytes(data)
    keeping.start_from(tiny.learner(model, seed=3), str(tmp_path))
    wider = tiny.make_model(tmp_path / "wider", hidden=48)
    with pytest.raises(ConfigError, match=rf"is for {model}, not for {wider}"):
        keeping.start_from(tiny.learner(wider), str(tmp_path))
