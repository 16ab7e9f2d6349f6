"""Answers drawn in this process: by the probabilities that are told, whatever else is in the batch."""

from __future__ import annotations

import pytest

from kb_ray.learn.generating import Drawing, draw
from kb_ray.learn.learner import Learner
from kb_ray.learn.samples import Drawn, Sample
from tests.unit.learn import tiny

PROMPTS = [(1, 3, 7, 8), (1, 3, 9), (1, 3, 10, 11, 12, 13, 14), (1, 3)]
ENDS = {2}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    return tiny.learner(tiny.make_model(tmp_path_factory.mktemp("model")))


def drawn(learner: Learner, seed: int = 1, **fields: float) -> list[Drawn]:
    return draw(learner.network, PROMPTS, Drawing(**({"max_tokens": 12} | fields)), ENDS, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_probabilities_told_are_the_learners_own(learner: Learner, temperature: float) -> None:
    answers = drawn(learner, temperature=temperature)
    samples = [
        Sample(prompt + answer.tokens, (False,) * len(prompt) + (True,) * len(answer.tokens))
        for prompt, answer in zip(PROMPTS, answers, strict=True)
    ]
    for answer, own in zip(answers, learner.logprobs(samples, temperature), strict=True):
        assert len(answer.tokens) == len(answer.logprobs) > 0
        assert list(answer.logprobs) == pytest.approx(own.tolist(), abs=1e-4)


def test_a_seed_repeats_answers_and_another_changes_them(learner: Learner) -> None:
    assert drawn(learner, seed=1) == drawn(learner, seed=1) != drawn(learner, seed=2)


def test_an_answer_does_not_depend_on_what_is_beside_it(learner: Learner) -> None:
    together = drawn(learner, temperature=0.0)
    apart = drawn(learner, temperature=0.0, batch_tokens=1)
    assert [answer.tokens for answer in together] == [answer.tokens for answer in apart]


def test_an_answer_ends_with_its_end_or_is_told_to_be_cut(learner: Learner) -> None:
    answers = [answer for seed in range(12) for answer in drawn(learner, seed=seed, max_tokens=20)]
    assert {answer.truncated for answer in answers} == {True, False}
    for answer in answers:
        assert (answer.tokens[-1] in ENDS) is not answer.truncated
        assert not ENDS & set(answer.tokens[:-1])
        assert len(answer.tokens) <= 20


def test_dropout_is_off_while_drawing_and_the_network_is_left_as_it_was(learner: Learner) -> None:
    learner.network.train()
    first = drawn(learner, temperature=0.0)
    assert learner.network.training
    learner.network.eval()
    assert drawn(learner, temperature=0.0) == first
