"""Adapters are published whole, each under a name of its own for good, and old ones leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.traces.store import LocalStore
from kb_ray.training.publishing import KEPT, Publisher
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import SAMPLES, SFT


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return tiny.learner(tiny.make_model(tmp_path / "model"))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "lora"))


def folders(store: LocalStore) -> set[str]:
    return {key.partition("/")[0] for key in store.list("")}


def test_peft_reads_what_was_published_and_its_weights_are_the_learners(learner: Learner, store: LocalStore) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    learner.step(SAMPLES, SFT)
    assert Publisher(store, "base", "run").publish(learner) == "base:run-step000001"
    base = AutoModelForCausalLM.from_pretrained(learner.settings.model)
    served = Learner.__new__(Learner)
    served.__dict__ |= learner.__dict__ | {"network": PeftModel.from_pretrained(base, f"{store.uri}/run-step000001")}
    for mine, theirs in zip(learner.logprobs(SAMPLES), served.logprobs(SAMPLES), strict=True):
        assert mine.tolist() == pytest.approx(theirs.tolist(), abs=1e-5)


def test_a_name_never_comes_to_mean_other_weights(learner: Learner, store: LocalStore) -> None:
    publisher = Publisher(store, "base", "run")
    names = [publisher.publish(learner), publisher.publish(learner)]
    learner.step(SAMPLES, SFT)
    learner.steps = 0
    names += [publisher.publish(learner), publisher.publish(learner)]
    assert names == ["base:run-step000000", "base:run-step000000", "base:run-step000000.1", "base:run-step000000.1"]


def test_what_a_killed_publish_left_is_completed(learner: Learner, store: LocalStore) -> None:
    Publisher(store, "base", "run").publish(learner)
    store.delete("run-step000000/adapter_config.json")
    assert Publisher(store, "base", "run").publish(learner) == "base:run-step000000"
    assert "run-step000000/adapter_config.json" in store.list("")


def test_old_ones_leave_and_those_of_other_runs_stay(learner: Learner, store: LocalStore) -> None:
    Publisher(store, "base", "other").publish(learner)
    Publisher(store, "base", "run-step1").publish(learner)
    publisher = Publisher(store, "base", "run")
    for step in range(8, 8 + KEPT + 3):
        learner.steps = step
        publisher.publish(learner)
    kept = {f"run-step{step:06d}" for step in range(8 + 3, 8 + KEPT + 3)}
    assert folders(store) == kept | {"other-step000000", "run-step1-step000000"}


@pytest.mark.parametrize("run", ["", "a/b", "a:b", "../x", "a b"])
def test_a_name_that_no_server_takes_is_refused(store: LocalStore, run: str) -> None:
    with pytest.raises(ConfigError, match="must be of letters"):
        Publisher(store, "base", run)
