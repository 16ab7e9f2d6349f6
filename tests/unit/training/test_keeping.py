"""A run that is killed and started again learns what it would have learned, and what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kb_ray import checkpoints
from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings, LoraSettings
from kb_ray.traces.store import LocalStore
from kb_ray.training import keeping
from kb_ray.training.settings import SftSettings
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import SAMPLES, SFT, weights


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "run"))


def trained(model: Path, steps: int, **settings: Any) -> Learner:
    learner = tiny.learner(model, dropout=0.2, **settings)
    for _ in range(steps):
        learner.step(SAMPLES, SFT)
    return learner


def test_the_loss_goes_on_as_if_nothing_had_been(model: Path, store: LocalStore) -> None:
    learner = trained(model, 3)
    keeping.save(store, learner, "f", {"batch": 3})
    plain = [learner.step(SAMPLES, SFT).loss for _ in range(3)]
    other = tiny.learner(model, dropout=0.2, seed=5)
    found = keeping.resume(store, other, "f")
    assert found is not None
    assert (found.step, other.steps, found.progress) == (3, 3, {"batch": 3})
    assert [other.step(SAMPLES, SFT).loss for _ in range(3)] == pytest.approx(plain, rel=1e-6)


def test_where_nothing_was_kept_training_begins(model: Path, store: LocalStore) -> None:
    assert keeping.resume(store, tiny.learner(model), "f") is None


def test_peft_loads_what_was_kept(model: Path, store: LocalStore) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    learner = trained(model, 3)
    keeping.save(store, learner, "f", {})
    folder = checkpoints.adapter_folder(store.uri)
    served = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), folder).eval()
    learner.network.eval()
    tokens = torch.tensor([[7, 8, 9]])
    with torch.no_grad():
        torch.testing.assert_close(served(tokens).logits, learner.network(tokens).logits)
    assert (folder / "tokenizer_config.json").is_file()


def test_another_run_can_begin_with_its_weights(model: Path, store: LocalStore) -> None:
    learner = trained(model, 2)
    keeping.save(store, learner, "f", {})
    other = tiny.learner(model, seed=8)
    keeping.start_from(other, store.uri)
    assert torch.equal(weights(other), weights(learner))
    assert other.steps == 0
    with pytest.raises(ConfigError, match="holds no adapter"):
        keeping.start_from(other, str(model))


def test_another_run_s_optimizer_is_not_needed_to_begin_with_its_weights(model: Path, store: LocalStore) -> None:
    learner = trained(model, 2)
    keeping.save(store, learner, "f", {})
    (Path(store.uri) / "checkpoints/step000002/state.pt").unlink()
    other = tiny.learner(model, seed=8)
    keeping.start_from(other, store.uri)
    assert torch.equal(weights(other), weights(learner))


def test_a_model_that_another_version_wrote_is_the_same_one(model: Path, store: LocalStore, tmp_path: Path) -> None:
    keeping.save(store, trained(model, 1), "f", {})
    anew = Path(shutil.copytree(model, tmp_path / "anew"))
    told = json.loads((anew / "config.json").read_text())
    assert "transformers_version" in told
    (anew / "config.json").write_text(json.dumps(told | {"transformers_version": "9.9"}))
    assert keeping.resume(store, tiny.learner(anew), "f") is not None


def test_what_does_not_fit_is_refused_in_one_line(model: Path, store: LocalStore, tmp_path: Path) -> None:
    keeping.save(store, trained(model, 1), "f", {})
    with pytest.raises(ConfigError, match="other settings"):
        keeping.resume(store, tiny.learner(model), "g")
    with pytest.raises(ConfigError, match="trained on"):
        keeping.resume(store, tiny.learner(tiny.make_model(tmp_path / "other", hidden=48)), "f")
    narrow = Learner(LearnerSettings(model=str(model), lora=LoraSettings(rank=4)), device="cpu")
    with pytest.raises(ConfigError, match="does not fit the settings of LoRA") as caught:
        keeping.resume(store, narrow, "f")
    assert "\n" not in str(caught.value)


def test_a_model_that_moved_is_known_by_what_it_is(model: Path, store: LocalStore, tmp_path: Path) -> None:
    keeping.save(store, trained(model, 1), SftSettings(model_name=str(model)).fingerprint(), {})
    moved = shutil.copytree(model, tmp_path / "moved")
    now = SftSettings(model_name=str(moved)).fingerprint()
    assert keeping.resume(store, tiny.learner(Path(moved)), now) is not None


def test_only_the_last_checkpoints_are_kept(model: Path, store: LocalStore) -> None:
    learner = tiny.learner(model)
    for _ in range(4):
        learner.step(SAMPLES, SFT)
        keeping.save(store, learner, "f", {}, keep=2)
    assert checkpoints.steps(store) == [3, 4]
