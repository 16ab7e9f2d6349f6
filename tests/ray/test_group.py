"""A learner in two processes of Ray Train learns what one process learns, and its failures come back as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from kb_ray.errors import ConfigError, InfraError
from kb_ray.learn.generating import Drawing
from kb_ray.learn.objective import LearnerSettings, LoraSettings, Objective
from kb_ray.learn.peers import Alone
from kb_ray.learn.stepping import NotFinite
from kb_ray.training import group as group_module
from kb_ray.training.group import GroupLearner, _Process
from kb_ray.training.placing import Seats
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import POLICY, SAMPLES, SFT

CPUS = Seats(gpus=False, labels={}, start_s=600.0, lacking=0)
LORA = LoraSettings(rank=8, alpha=16, dropout=0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def group(ray_cluster: str, model: Path) -> Iterator[GroupLearner]:
    settings = LearnerSettings(model=str(model), lora=LORA, learning_rate=1e-2)
    learner = GroupLearner(settings, processes=2, seats=CPUS)
    yield learner
    learner.close()


def weights(files: dict[str, bytes]) -> dict[str, torch.Tensor]:
    return load(files["adapter_model.safetensors"])


def test_two_processes_learn_what_one_learns(group: GroupLearner, model: Path) -> None:
    alone = tiny.learner(model)
    group.restore(alone.state(), alone.adapter()["adapter_model.safetensors"])
    given = [replace(sample, advantage=(-1.0) ** n) for n, sample in enumerate(SAMPLES)]
    steps: list[tuple[Objective, int]] = [(SFT, 1), (POLICY, 2), (POLICY.model_copy(update={"kl_beta": 0.1}), 1)]
    for objective, parts in steps:
        told, own = group.epoch(given, objective, parts), alone.epoch(given, objective, parts)
        for one, other in zip(told, own, strict=True):
            assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
    assert group.steps == alone.steps == 4
    expected = weights(alone.adapter())
    for name, value in weights(group.adapter()).items():
        # Adam makes much of gradients near 0, where the order of sums shows; see the same test in float64.
        torch.testing.assert_close(value, expected[name], atol=1e-3, rtol=0)
    state = group.state()
    assert (state["steps"], state["optimizer"]["state"].keys()) == (4, alone.state()["optimizer"]["state"].keys())
    assert group.base_weights() == alone.base_weights()


def test_prompts_are_shared_and_answered_in_their_order(group: GroupLearner) -> None:
    prompts = [(7, 8, 9), (7, 8, 9), (10, 11), (7, 8, 9), (12,)]
    answers = group.draw(prompts, Drawing(1.0, 6), {2}, seed=5)
    assert len(answers) == 5
    assert all(len(answer.logprobs) == len(answer.tokens) for answer in answers)
    assert answers[0].tokens != answers[1].tokens, "two processes drew the same"
    assert group.draw(prompts, Drawing(1.0, 6), {2}, seed=5) == answers
    assert group.window == 4096


def test_a_failure_is_what_it_would_be_in_one_process_and_the_group_goes_on(group: GroupLearner) -> None:
    before, steps = weights(group.adapter()), group.steps
    with pytest.raises(NotFinite, match="the step was not taken"):
        group.step([replace(SAMPLES[0], advantage=float("inf")), *SAMPLES[1:]], SFT)
    after = weights(group.adapter())
    assert all(torch.equal(after[name], value) for name, value in before.items())
    group.step(SAMPLES, SFT)
    assert group.steps == steps + 1


def test_a_mistake_of_one_process_ends_the_group_in_one_line(group: GroupLearner) -> None:
    for _ in range(2):
        with pytest.raises(InfraError, match=r"a process that learns .*failed at draw") as caught:
            group.draw([(7,), ()], Drawing(1.0, 2), {2}, 0)
        assert "\n" not in str(caught.value)


def test_a_model_that_cannot_be_loaded_is_one_line(ray_cluster: str, model: Path) -> None:
    nowhere = LoraSettings(target_modules=("nowhere",))
    with pytest.raises(ConfigError, match="no adapter fits"):
        GroupLearner(LearnerSettings(model=str(model), lora=nowhere), processes=2, seats=CPUS)


def test_a_model_that_one_process_has_no_memory_for_is_one_line(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As such a process answers, whose answers the tests above have come back."""

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(group_module, "Together", Alone)
    monkeypatch.setattr("peft.PeftModel.to", full)
    answer = group_module._tried(_Process(), "load", (LearnerSettings(model=str(model), lora=LORA),))
    assert type(answer) is ConfigError
    assert "do not fit into" in str(answer)
    assert "a smaller --model-name" in str(answer)
    assert "\n" not in str(answer)


def test_processes_wait_for_a_node_with_their_pools_label_and_not_for_ever(ray_cluster: str, model: Path) -> None:
    # There are CPUs enough: without the label they would start here.
    seats = CPUS.model_copy(update={"labels": {"kb-pool": "train"}, "start_s": 8.0})
    with pytest.raises(InfraError, match=r"no room within .* minutes for 2 processes .* a CPU on a node labelled kb-p"):
        GroupLearner(LearnerSettings(model=str(model), lora=LORA), processes=2, seats=seats)
