"""A learner on two GPUs, in two processes of Ray Train that add up gradients over NCCL, learns what one GPU learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kb_ray.cluster import local_gpus
from kb_ray.learn.generating import Drawing
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings, LoraSettings
from kb_ray.training.group import GroupLearner
from kb_ray.training.placing import place
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import POLICY, SAMPLES, SFT

pytestmark = pytest.mark.skipif(local_gpus() < 2, reason="needs two CUDA GPUs")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> LearnerSettings:
    model: Path = tiny.make_model(tmp_path_factory.mktemp("model"))
    return LearnerSettings(model=str(model), lora=LoraSettings(rank=8, alpha=16, dropout=0.0), learning_rate=1e-2)


@pytest.fixture(scope="module")
def group(ray_cluster: str, settings: LearnerSettings) -> Iterator[GroupLearner]:
    learner = GroupLearner(settings, processes=2, seats=place(2, [{"Alive": True, "Resources": {"GPU": 2}}]))
    yield learner
    learner.close()


def test_two_gpus_learn_what_one_learns(group: GroupLearner, settings: LearnerSettings) -> None:
    alone = Learner(settings, device="cuda")
    group.restore(alone.state(), alone.adapter()["adapter_model.safetensors"])
    given = [replace(sample, advantage=(-1.0) ** n) for n, sample in enumerate(SAMPLES)]
    for objective, parts in ((SFT, 1), (POLICY, 2)):
        told, own = group.epoch(given, objective, parts), alone.epoch(given, objective, parts)
        for one, other in zip(told, own, strict=True):
            # In bfloat16, in batches of other shapes.
            assert (one.loss, one.gradient_norm) == pytest.approx((other.loss, other.gradient_norm), rel=0.05, abs=0.02)
    assert group.steps == alone.steps == 3


def test_each_gpu_draws_its_share(group: GroupLearner) -> None:
    prompts = [(7, 8, 9), (7, 8, 9), (10, 11), (7, 8, 9), (12,)]
    answers = group.draw(prompts, Drawing(1.0, 40), {2}, seed=5)
    assert all(0 < len(answer.tokens) == len(answer.logprobs) for answer in answers)
    assert answers[0].tokens != answers[1].tokens
    assert group.draw(prompts, Drawing(1.0, 40), {2}, seed=5) == answers
