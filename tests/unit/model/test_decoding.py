"""A network asked token by token says what it says when it reads the whole at once, however keys are kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kb_ray.model import decoding
from kb_ray.model.decoding import Fixed, Growing, decode
from kb_ray.model.drawing import padded
from tests.unit.learn import tiny

PROMPTS = [(1, 3, 7, 8), (1, 3, 9), (1, 3, 10, 11, 12, 13, 14), (1, 3)]
SAID = [(9, 4, 4), (7, 20, 21), (5, 6, 7), (30, 2, 11)]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny.learner(tiny.make_model(tmp_path_factory.mktemp("model"))).network.eval()


@pytest.mark.parametrize("keeping", [Growing, Fixed])
def test_scores_are_those_of_the_whole_sequence(network: Any, keeping: type[Growing] | type[Fixed]) -> None:
    with torch.no_grad():
        steps = keeping(network, *padded(PROMPTS, 2), most=8)
        for count in range(len(SAID[0]) + 1):
            for row, (prompt, said) in enumerate(zip(PROMPTS, SAID, strict=True)):
                whole = network(torch.tensor([prompt + said[:count]])).logits[0, -1]
                torch.testing.assert_close(steps.scores()[row], whole, atol=1e-4, rtol=1e-4)
            if count < len(SAID[0]):
                steps.take(torch.tensor([said[count] for said in SAID]))


@pytest.mark.parametrize("fixed", [True, False])
def test_all_room_may_be_used_and_what_follows_an_end_is_padding(
    network: Any, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_recordable", lambda network, device: fixed)
    script = torch.tensor([[5, 2, 6, 7], [2, 5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 2]])
    places = iter(range(4))

    def choose(scores: Tensor) -> Tensor:
        return script[:, next(places)]

    answers = decode(network, *padded(PROMPTS, 2), choose, 4, {2}, pad=0)
    assert answers.tolist() == [[5, 2, 0, 0], [2, 0, 0, 0], [5, 6, 7, 8], [5, 6, 7, 2]]


def test_nothing_is_computed_once_all_have_ended(network: Any) -> None:
    asked = []

    def choose(scores: Tensor) -> Tensor:
        asked.append(scores.shape)
        return torch.full((len(PROMPTS),), 2)

    decode(network, *padded(PROMPTS, 2), choose, 1000, {2}, pad=0)
    assert len(asked) <= 16
