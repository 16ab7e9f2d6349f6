"""Adapters are published whole, each under a name of its own for good, and old ones leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.errors import ConfigError, StoreError
from kb_ray.learn.learner import Learner
from kb_ray.traces.lease import LeaseLost
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


def publisher(store: LocalStore, run: str = "run", start: str = "a") -> Publisher:
    return Publisher(store, "base", run, start)


def at(learner: Learner, step: int) -> Learner:
    """The learner at a step, with other weights than before."""
    learner.step(SAMPLES, SFT)
    learner.steps = step
    return learner


def test_peft_reads_what_was_published_and_its_weights_are_the_learners(learner: Learner, store: LocalStore) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    learner.step(SAMPLES, SFT)
    assert publisher(store).publish(learner) == "base:run-a-step000001"
    base = AutoModelForCausalLM.from_pretrained(learner.settings.model)
    served = Learner.__new__(Learner)
    served.__dict__ |= learner.__dict__ | {"network": PeftModel.from_pretrained(base, f"{store.uri}/run-a-step000001")}
    for mine, theirs in zip(learner.logprobs(SAMPLES), served.logprobs(SAMPLES), strict=True):
        assert mine.tolist() == pytest.approx(theirs.tolist(), abs=1e-5)


def test_a_name_never_comes_to_mean_other_weights(learner: Learner, store: LocalStore) -> None:
    """Also not that of a step whose adapter has left the store."""
    meant: dict[str, bytes | None] = {}
    for start, steps in (("a", range(1, 3 + KEPT)), ("b", range(1, 5)), ("c", range(3, 5))):
        ours = publisher(store, start=start)
        for step in steps:
            name = ours.publish(at(learner, step)).partition(":")[2]
            weights = store.get(f"{name}/adapter_model.safetensors")
            assert meant.setdefault(name, weights) == weights
    assert len(meant) == 2 + KEPT + 4 + 2


def test_the_same_weights_again_are_the_same_name_and_others_are_refused(learner: Learner, store: LocalStore) -> None:
    ours = publisher(store)
    assert ours.publish(at(learner, 1)) == ours.publish(learner) == "base:run-a-step000001"
    before = store.get("run-a-step000001/adapter_model.safetensors")
    with pytest.raises(StoreError, match=r"run-a-step000001/adapter_model\.safetensors holds another adapter"):
        ours.publish(at(learner, 1))
    assert store.get("run-a-step000001/adapter_model.safetensors") == before


def test_old_ones_leave_and_those_of_other_runs_stay(learner: Learner, store: LocalStore) -> None:
    publisher(store, "other").publish(learner)
    publisher(store, "run-step1").publish(learner)
    ours = publisher(store)
    for step in range(8, 8 + KEPT + 3):
        learner.steps = step
        ours.publish(learner)
    kept = {f"run-a-step{step:06d}" for step in range(8 + 3, 8 + KEPT + 3)}
    assert folders(store) == kept | {"other-a-step000000", "run-step1-a-step000000"}


def test_a_run_that_went_back_keeps_what_it_published_last(learner: Learner, store: LocalStore) -> None:
    """The batch begun ahead still draws from the step before, whatever numbers an earlier start had reached."""
    earlier = publisher(store)
    for step in (87, 88, 89, 90):
        earlier.publish(at(learner, step))
    store.delete("run-a-step000090/adapter_config.json")
    ours, told = publisher(store, start="b"), []
    for step in (50, 51, 52, 53, 54):
        ours.publish(at(learner, step))
        told.append(folders(store))
    assert all(f"run-b-step0000{newest - 1}" in there for newest, there in zip((51, 52, 53, 54), told[1:], strict=True))
    assert told[1] == {"run-b-step000050", "run-b-step000051", "run-a-step000089", "run-a-step000090"}
    assert told[-1] == {f"run-b-step0000{step}" for step in (51, 52, 53, 54)}


def test_a_start_that_has_lost_its_output_removes_nothing(learner: Learner, store: LocalStore) -> None:
    def lost() -> None:
        raise LeaseLost("taken over")

    there = publisher(store, start="b")
    for step in range(KEPT):
        there.publish(at(learner, step))
    before = folders(store)
    with pytest.raises(LeaseLost):
        Publisher(store, "base", "run", "a", lost).publish(at(learner, 90))
    assert folders(store) == before


@pytest.mark.parametrize("run", ["", "a/b", "a:b", "../x", "a b"])
def test_a_name_that_no_server_takes_is_refused(store: LocalStore, run: str) -> None:
    with pytest.raises(ConfigError, match="must be of letters"):
        publisher(store, run)
