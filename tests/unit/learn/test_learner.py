"""What a learner learns, that batches do not change it, that it stops at nonsense, and that it can go on later."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner, NotFinite
from kb_ray.learn.objective import LearnerSettings, LoraSettings, Objective
from kb_ray.learn.samples import Sample
from tests.unit.learn import tiny

SFT = Objective(kind="likelihood", averaging="token")
POLICY = Objective(kind="policy", averaging="constant", length=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def sample(prompt: tuple[int, ...], answer: tuple[int, ...], advantage: float = 1.0) -> Sample:
    return Sample(prompt + answer, (False,) * len(prompt) + (True,) * len(answer), advantage)


SAMPLES = [
    sample((7, 8, 9), (10, 11)),
    sample((7, 8), (12, 13, 14)),
    sample((9, 9, 9, 9), (10,)),
    sample((8,), (15, 2)),
]


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([part.detach().flatten() for part in learner.trained])


def test_log_probabilities_are_those_of_the_trained_tokens(model: Path) -> None:
    learner = tiny.learner(model, batch_tokens=6)
    found = learner.logprobs(SAMPLES)
    for given, values in zip(SAMPLES, found, strict=True):
        with torch.no_grad():
            logits = learner.network(input_ids=torch.tensor([given.tokens])).logits[0].log_softmax(-1)
        expected = [float(logits[at - 1, token]) for at, token in enumerate(given.tokens) if given.trained[at]]
        assert values.tolist() == pytest.approx(expected, abs=1e-5)


def test_sft_makes_answers_likely(model: Path) -> None:
    learner = tiny.learner(model)
    before = [value.sum() for value in learner.logprobs(SAMPLES)]
    reports = [learner.step(SAMPLES, SFT) for _ in range(30)]
    after = [value.sum() for value in learner.logprobs(SAMPLES)]
    assert reports[-1].loss < 0.3 * reports[0].loss
    assert all(now > then for now, then in zip(after, before, strict=True))
    assert reports[0].tokens == 8


def test_policy_gradient_follows_the_sign_of_the_advantage(model: Path) -> None:
    learner = tiny.learner(model)
    given = [sample((7, 8), (10, 11), 1.0), sample((7, 8), (12, 13), -1.0)]
    before = [float(value.sum()) for value in learner.logprobs(given)]
    for _ in range(5):
        learner.step(given, POLICY)
    after = [float(value.sum()) for value in learner.logprobs(given)]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_advantages_of_zero_change_nothing(model: Path) -> None:
    learner = tiny.learner(model)
    before = weights(learner)
    learner.step([replace(given, advantage=0.0) for given in SAMPLES], POLICY)
    torch.testing.assert_close(weights(learner), before, atol=1e-7, rtol=0)


@pytest.mark.parametrize(
    "objective", [SFT, POLICY, POLICY.model_copy(update={"averaging": "sequence", "kl_beta": 0.1})]
)
def test_how_much_fits_in_memory_changes_nothing(model: Path, objective: Objective) -> None:
    moved = []
    for batch_tokens in (4, 1000):
        learner = tiny.learner(model, batch_tokens=batch_tokens)
        for _ in range(3):
            learner.step(SAMPLES, objective)
        moved.append(weights(learner))
    # Three steps of 0.01 each: what the order of sums changes is a hundredth of that.
    torch.testing.assert_close(moved[0], moved[1], atol=3e-4, rtol=1e-2)


def test_several_steps_of_one_batch_are_bounded_by_the_clip(model: Path) -> None:
    learner = tiny.learner(model, learning_rate=0.1)
    reports = learner.epoch(SAMPLES * 4, POLICY, parts=4)
    assert len(reports) == learner.steps == 4
    assert reports[0].clipped == 0.0
    assert max(report.clipped for report in reports[1:]) > 0.0


def test_the_distance_from_the_model_without_its_adapter_is_told(model: Path) -> None:
    learner, objective = tiny.learner(model), POLICY.model_copy(update={"kl_beta": 0.01})
    reports = [learner.step(SAMPLES, objective) for _ in range(4)]
    assert reports[0].kl == pytest.approx(0.0, abs=1e-6)
    assert reports[-1].kl > 1e-4


def test_what_a_sampler_had_otherwise_is_told_and_corrected(model: Path) -> None:
    learner = tiny.learner(model)
    own = learner.logprobs(SAMPLES)
    exact = [replace(given, logprobs=tuple(value.tolist())) for given, value in zip(SAMPLES, own, strict=True)]
    assert learner.step(exact, POLICY).mismatch == pytest.approx(0.0, abs=1e-6)
    off = [replace(given, logprobs=tuple((value - 1).tolist())) for given, value in zip(SAMPLES, own, strict=True)]
    report = tiny.learner(model).step(off, POLICY.model_copy(update={"correction": "mask"}))
    assert report.mismatch == pytest.approx(1.0, abs=0.01)
    assert report.left_out == len(SAMPLES)


def test_a_step_that_is_no_number_is_not_taken(model: Path) -> None:
    learner = tiny.learner(model)
    learner.step(SAMPLES, SFT)
    before = weights(learner)
    with pytest.raises(NotFinite, match=r"step 2: .* not taken"):
        learner.step([replace(SAMPLES[0], advantage=math.inf)], SFT)
    assert torch.equal(weights(learner), before)
    assert learner.steps == 1


def test_a_restored_learner_goes_on_as_if_nothing_had_been(model: Path) -> None:
    plain = tiny.learner(model, dropout=0.2)
    for _ in range(3):
        plain.step(SAMPLES, SFT)
    saved = io.BytesIO()
    torch.save({"state": plain.state(), "weights": [part.detach() for part in plain.trained]}, saved)
    later = [plain.step(SAMPLES, SFT).loss for _ in range(3)]
    saved.seek(0)
    kept = torch.load(saved, weights_only=True)
    other = tiny.learner(model, dropout=0.2, seed=9)
    with torch.no_grad():
        for part, value in zip(other.trained, kept["weights"], strict=True):
            part.copy_(value)
    other.restore(kept["state"])
    assert [other.step(SAMPLES, SFT).loss for _ in range(3)] == pytest.approx(later, rel=1e-6)


def test_the_learning_rate_rises_and_falls(model: Path) -> None:
    learner = tiny.learner(model, learning_rate=1.0, warmup_steps=2, total_steps=10)
    rates = []
    for learner.steps in range(11):
        rates.append(learner.learning_rate())
    assert rates[0] == pytest.approx(0.5)
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[-1] == pytest.approx(0.0)


def test_a_seed_decides_the_first_weights(model: Path) -> None:
    one, same, other = (weights(tiny.learner(model, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_what_cannot_be_loaded_is_one_line(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        Learner(LearnerSettings(model=str(tmp_path)), device="cpu")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="no adapter fits"):
        Learner(LearnerSettings(model=str(model), lora=LoraSettings(target_modules=("nowhere",))), device="cpu")
