"""What a learner learns, that batches do not change it, that it stops at nonsense, and that it can go on later."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kb_ray.errors import ConfigError
from kb_ray.learn.generating import Drawing
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings, LoraSettings, Objective
from kb_ray.learn.peers import Alone
from kb_ray.learn.samples import Sample
from kb_ray.learn.stepping import Elsewhere, NotFinite, OutOfMemory, StepReport
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


def gradients(learner: Learner) -> torch.Tensor:
    return torch.cat([part.grad.flatten() for part in learner.trained if part.grad is not None])


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
        # In float64 the order of sums is no excuse.
        learner.network.double()
        for _ in range(3):
            learner.step(SAMPLES, objective)
        moved.append((weights(learner), gradients(learner)))
    torch.testing.assert_close(moved[0], moved[1], atol=1e-9, rtol=0)
    assert float(moved[0][1].abs().max()) > 1e-3


class _Threads(Alone):
    """Two learners in threads of one process, whose tensors are added up where they meet."""

    world = 2

    def __init__(self, rank: int, meeting: threading.Barrier, given: dict[int, list[torch.Tensor]]) -> None:
        self.rank, self._meeting, self._given = rank, meeting, given

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        self._given[self.rank] = [tensor.clone() for tensor in tensors]
        self._meeting.wait(30)
        for place, tensor in enumerate(tensors):
            tensor.copy_(self._given[0][place] + self._given[1][place])
        self._meeting.wait(30)


@pytest.mark.parametrize("objective", [SFT, POLICY.model_copy(update={"averaging": "sequence", "kl_beta": 0.1})])
def test_two_processes_take_the_steps_of_one(model: Path, objective: Objective) -> None:
    given = [replace(one, advantage=float(n - 1)) for n, one in enumerate([*SAMPLES, sample((7,), (16, 17, 2))])]

    def two_epochs(learner: Learner) -> list[StepReport]:
        return [report for _ in range(2) for report in learner.epoch(given, objective, parts=2)]

    alone, meeting, shared = tiny.learner(model), threading.Barrier(2), dict[int, list[torch.Tensor]]()
    both = [tiny.learner(model) for _ in range(2)]
    for rank, one in enumerate(both):
        one.peers = _Threads(rank, meeting, shared)
    for one in (alone, *both):
        one.network.double()
    expected = two_epochs(alone)
    with ThreadPoolExecutor(2) as threads:
        told = list(threads.map(two_epochs, both))
    for one, reports in zip(both, told, strict=True):
        torch.testing.assert_close(weights(one), weights(alone), atol=1e-9, rtol=0)
        for report, other in zip(reports, expected, strict=True):
            assert report == pytest.approx(other, abs=1e-6)


def test_where_memory_runs_out_the_step_is_not_taken_and_the_setting_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = tiny.learner(model, batch_tokens=1000)
    before = weights(learner).clone()

    def full(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(learner, "_forward", full)
        with pytest.raises(
            OutOfMemory, match=r"step 1: .* hold 4 sequences of 5 tokens .*--batch-tokens, now 1000"
        ) as e:
            learner.step(SAMPLES, SFT)
        assert "--gradient-checkpointing" in str(e.value)
        with pytest.raises(
            OutOfMemory, match=r"hold 1 sequences of 5 tokens .*; give --gradient-checkpointing: .*lower --max-tokens"
        ):
            learner.step(SAMPLES[:1], SFT)
        patched.setattr("kb_ray.learn.learner.draw", full)
        with pytest.raises(OutOfMemory, match=r"draw 2 answers at once: lower --rollout-tokens, now 8"):
            learner.draw([(7, 8)] * 3, Drawing(max_tokens=2, batch_tokens=8), {2}, 0)
        with pytest.raises(OutOfMemory, match=r"draw 1 answers at once: have a server .*; or lower --max-tokens"):
            learner.draw([(7, 8)] * 3, Drawing(max_tokens=2, batch_tokens=7), {2}, 0)
    assert (learner.steps, torch.equal(weights(learner), before)) == (0, True)
    learner.step(SAMPLES, SFT)


def test_what_runs_out_in_another_process_stops_this_one_too(model: Path) -> None:
    class Full(Alone):
        def add(self, tensors: Sequence[torch.Tensor]) -> None:
            tensors[-1][-1] += 1

    learner = tiny.learner(model)
    before = weights(learner).clone()
    learner.peers = Full()
    with pytest.raises(Elsewhere, match="another process ran out of memory"):
        learner.step(SAMPLES, SFT)
    assert (learner.steps, torch.equal(weights(learner), before)) == (0, True)


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
