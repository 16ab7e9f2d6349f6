"""Answers drawn by a recorded step: the same scores as when everything is read at once, for every adapter's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kb_ray.learn.generating import Drawing, draw
from kb_ray.model.decoding import Fixed, _recordable
from kb_ray.model.drawing import padded
from tests.unit.learn import tiny
from tests.unit.model.test_decoding import PROMPTS, SAID


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tiny.make_model(tmp_path_factory.mktemp("model"))
    return tiny.learner(folder).network.to("cuda").eval()


def test_the_recorded_step_says_what_the_whole_sequence_says(network: Any) -> None:
    assert _recordable(network, torch.device("cuda"))
    tokens, attention = padded(PROMPTS, 2)
    with torch.no_grad():
        steps = Fixed(network, tokens.cuda(), attention.cuda(), most=8)
        for count in range(len(SAID[0]) + 1):
            for row, (prompt, said) in enumerate(zip(PROMPTS, SAID, strict=True)):
                whole = network(torch.tensor([prompt + said[:count]], device="cuda")).logits[0, -1]
                torch.testing.assert_close(steps.scores()[row], whole, atol=1e-3, rtol=1e-3)
            if count < len(SAID[0]):
                steps.take(torch.tensor([said[count] for said in SAID], device="cuda"))
    assert steps._graph is not None


def test_weights_that_have_changed_are_used(network: Any) -> None:
    before = draw(network, PROMPTS, Drawing(0.0, 12), {2}, seed=1)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if "lora_B" in name:
                weights.normal_(generator=torch.Generator("cuda").manual_seed(1))
    after = draw(network, PROMPTS, Drawing(0.0, 12), {2}, seed=1)
    assert [one.tokens for one in before] != [one.tokens for one in after]
