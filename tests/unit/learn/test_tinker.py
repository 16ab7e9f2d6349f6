"""The same samples, learned at a service through Tinker's SDK: the same losses and weights as here; its failures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from kb_ray.errors import ConfigError
from kb_ray.learn.objective import LearnerSettings, LoraSettings, Objective
from kb_ray.learn.stepping import NotFinite
from kb_ray.learn.tinker import TinkerFailure, TinkerLearner
from kb_ray.learn.tinker_sampler import TinkerSampler
from kb_ray.records import Message, Sampling
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import SAMPLES, SFT
from tests.unit.learn.tinker_server import Service, running

POLICY = Objective(kind="policy", averaging="constant", length=8, correction="none")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with running(tmp_path, monkeypatch) as found:
        yield found


def learner(service: Service, **settings: object) -> TinkerLearner:
    lora = LoraSettings(rank=8, alpha=16, dropout=0.0)
    return TinkerLearner(
        LearnerSettings.model_validate({"model": str(service.model), "lora": lora, "learning_rate": 1e-2} | settings)
    )


def drawn(service: Service) -> list:
    """Samples with the probabilities of the model as it is, and advantages of both signs."""
    told = tiny.learner(service.model).logprobs(SAMPLES)
    return [
        replace(sample, advantage=(-1.0) ** n * (1 + n), logprobs=tuple(value.tolist()))
        for n, (sample, value) in enumerate(zip(SAMPLES, told, strict=True))
    ]


@pytest.mark.parametrize("averaging", ["token", "constant", "sequence"])
def test_sft_there_is_sft_here(service: Service, averaging: str) -> None:
    objective = SFT.model_copy(update={"averaging": averaging})
    there, here = learner(service, warmup_steps=3), tiny.learner(service.model, warmup_steps=3)
    for _ in range(4):
        told, own = there.step(SAMPLES, objective), here.step(SAMPLES, objective)
        assert (told.loss, told.learning_rate, told.tokens) == pytest.approx(
            (own.loss, own.learning_rate, own.tokens), rel=1e-4
        )
    assert there.steps == 4
    weights = load(there.adapter()["adapter_model.safetensors"])
    kept = load(here.adapter()["adapter_model.safetensors"])
    for name, value in kept.items():
        torch.testing.assert_close(weights[name], value, atol=2e-4, rtol=0)
    there.close()


def test_grpo_there_is_grpo_here(service: Service) -> None:
    there, here, samples = learner(service), tiny.learner(service.model), drawn(service)
    told, own = there.epoch(samples, POLICY, parts=2), here.epoch(samples, POLICY, parts=2)
    for one, other in zip(told, own, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-3, abs=1e-5)
        assert one.clipped == pytest.approx(other.clipped)
    assert told[0].mismatch == pytest.approx(0.0, abs=1e-5)
    assert (
        service.losses
        == [("ppo", {"clip_low_threshold": pytest.approx(0.8), "clip_high_threshold": pytest.approx(1.28)})] * 2
    )
    assert {(step["beta2"], step["grad_clip_norm"]) for step in service.adam} == {(0.95, 1.0)}


def test_what_it_kept_is_gone_on_with(service: Service) -> None:
    plain = learner(service)
    for _ in range(2):
        plain.step(SAMPLES, SFT)
    state = plain.state()
    later = [plain.step(SAMPLES, SFT).loss for _ in range(2)]
    other = learner(service)
    other.restore(state)
    assert other.steps == 2
    assert [other.step(SAMPLES, SFT).loss for _ in range(2)] == pytest.approx(later, rel=1e-5)
    begun = learner(service)
    begun.begin_with(None, state)
    assert (begun.steps, begun.step(SAMPLES, SFT).loss) == (0, pytest.approx(later[0], rel=1e-5))
    with pytest.raises(ConfigError, match="Tinker begins with what was trained there"):
        learner(service).begin_with(b"", None)


async def test_answers_come_from_the_weights_of_the_last_step(service: Service) -> None:
    there, here = learner(service), tiny.learner(service.model)
    sampler = TinkerSampler(there, "run", Sampling(temperature=1.0, max_tokens=6))
    prompt = sampler.prompt([Message(role="user", content="w1")])
    assert (sampler.policy, sampler.model, sampler.window) == (0, "run-step000000", 4096)
    for step in range(2):
        answers = await sampler.draw([prompt, prompt, (*prompt, 7)], seed=3)
        for answer in answers:
            assert answer.truncated is (answer.tokens[-1] != 2)
            own = tiny_sample(prompt if answer is not answers[2] else (*prompt, 7), answer.tokens)
            assert list(answer.logprobs) == pytest.approx(here.logprobs([own])[0].tolist(), abs=1e-4)
        if step == 0:
            there.step(SAMPLES, SFT)
            here.step(SAMPLES, SFT)
    assert service.asked.count("save_weights_for_sampler") == 2
    assert service.asked.count("asample") == 4
    assert sampler.text(answers[0].tokens)


def tiny_sample(prompt: tuple[int, ...], answer: tuple[int, ...]):
    from tests.unit.learn.test_learner import sample

    return sample(prompt, answer)


def test_a_loss_that_is_no_number_is_not_taken(service: Service) -> None:
    there = learner(service)
    with pytest.raises(NotFinite, match=r"step 1: the loss is .*: the step was not taken"):
        there.step([replace(SAMPLES[0], advantage=float("nan"))], SFT)
    assert "optim_step" not in service.asked
    assert there.steps == 0


@pytest.mark.parametrize(
    ("path", "failure", "message"),
    [
        ("forward_backward", (0, "worker\nlost"), "failed while learning step 1: .*worker"),
        ("optim_step", (422, "no room"), "failed while taking step 1: .*no room"),
        ("create_model", (404, "no such model"), "failed while making a model of"),
        ("save_weights", (0, "disk full"), "failed while keeping its state: .*disk full"),
    ],
)
def test_a_failure_of_the_service_is_one_line(
    service: Service, path: str, failure: tuple[int, str], message: str
) -> None:
    service.fails[path] = failure
    there = learner(service)
    with pytest.raises(TinkerFailure, match=message) as caught:
        (there.state if path == "save_weights" else lambda: there.step(SAMPLES, SFT))()
    assert "\n" not in str(caught.value)
    assert "start the same command again" in str(caught.value)


def test_what_is_missing_is_one_line(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"Tinker does not train .*modell; near: .*model"):
        learner(service, model=f"{service.model}l")
    monkeypatch.setenv("TINKER_API_KEY", "tml-other")
    with pytest.raises(ConfigError, match=r"refuses the key in TINKER_API_KEY: .*no such key"):
        learner(service)
    monkeypatch.setenv("TINKER_API_KEY", "nonsense")
    with pytest.raises(ConfigError, match=r"refuses the key in TINKER_API_KEY: .*must start with"):
        learner(service)
    monkeypatch.delenv("TINKER_API_KEY")
    with pytest.raises(ConfigError, match="set TINKER_API_KEY"):
        learner(service)
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ConfigError, match=r"pip install 'kb-ray\[tinker\]'"):
        learner(service)
