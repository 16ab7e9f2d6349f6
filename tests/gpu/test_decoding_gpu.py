"""Answers drawn by a recorded step: the same scores as when everything is read at once, for every adapter's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kb_ray.learn.generating import Drawing, draw
from kb_ray.model import decoding, recording
from kb_ray.model.decoding import Fixed, _recordable
from kb_ray.model.drawing import padded
from tests.unit.learn import tiny
from tests.unit.model.test_decoding import PROMPTS, SAID, check, dynamic, small


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tiny.make_model(tmp_path_factory.mktemp("model"))
    return tiny.learner(folder).network.to("cuda").eval()


def fixed(network: Any) -> Fixed:
    """It has read the prompts on the GPU."""
    tokens, attention = padded(PROMPTS, 2)
    return Fixed(network, tokens.cuda(), attention.cuda(), most=8)


def test_the_recorded_step_says_what_the_whole_sequence_says(network: Any) -> None:
    assert _recordable(network, torch.device("cuda"))
    with torch.no_grad():
        steps = fixed(network)
        check(network, steps)
    assert steps._recording is not None
    steps.close()


def test_weights_that_have_changed_are_used(network: Any) -> None:
    adapted = [weights for name, weights in network.named_parameters() if "lora_B" in name]
    before = [weights.detach().clone() for weights in adapted]
    with torch.no_grad():
        steps = fixed(network)
        try:
            for count in range(2):
                steps.take(torch.tensor([said[count] for said in SAID], device="cuda"))
            made = steps._recording
            assert made is not None
            for weights in adapted:
                weights.normal_(generator=torch.Generator("cuda").manual_seed(1))
            steps.take(torch.tensor([said[2] for said in SAID], device="cuda"))
            assert steps._recording is made
            # Keys of the tokens before are of the former weights, so that only a change can be asked for.
            changed = steps.scores().clone()
            for weights, old in zip(adapted, before, strict=True):
                weights.copy_(old)
            whole = network(torch.tensor([PROMPTS[0] + SAID[0]], device="cuda")).logits[0, -1]
            assert (changed[0] - whole).abs().max() > 0.01
        finally:
            steps.close()
            for weights, old in zip(adapted, before, strict=True):
                weights.copy_(old)


def test_a_sliding_window_is_not_recorded_and_answers_rightly() -> None:
    network = small("Mistral", sliding_window=4).cuda()
    drawn = draw(network, PROMPTS, Drawing(0.0, 12), {2}, seed=1)
    for prompt, one in zip(PROMPTS, drawn, strict=True):
        tokens = list(prompt)
        for token in one.tokens:
            with torch.no_grad():
                scores = network(torch.tensor([tokens], device="cuda")).logits[0, -1]
            assert scores.max() - scores[token] < 1e-3
            tokens.append(token)


def test_many_recordings_hold_no_more_memory_than_one(network: Any) -> None:
    held = []
    for seed in range(6):
        draw(network, PROMPTS, Drawing(1.0, 12), {2}, seed=seed)
        held.append(torch.cuda.memory_reserved())
    assert held[-1] == held[1]


def test_a_step_that_cannot_be_recorded_leaves_the_gpu_usable(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind(recording.Looks):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(decoding, "Looks", Blind)
    looking = dynamic().cuda()
    with torch.no_grad():
        steps = fixed(looking)
        for count in range(3):
            steps.take(torch.tensor([said[count] for said in SAID], device="cuda"))
        assert steps._recording is None
        assert not _recordable(looking, torch.device("cuda"))
        # Drawing, recording anew and giving memory back go on.
        torch.multinomial(torch.ones(4, device="cuda"), 1)
        again = fixed(network)
        check(network, again)
        assert again._recording is not None
        again.close()
    block = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    del block
    before = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before - (1 << 28)
