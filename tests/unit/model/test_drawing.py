"""Answers drawn together are those drawn alone, and follow the distribution that was asked for."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kb_ray.model.drawing import FEWEST_TOKENS, Wanted, draw, room, token_bytes
from tests.unit.learn import tiny

END = {2}
PROMPTS = ((1, 3, 7, 2), (1, 3, 9, 9, 9, 12, 2), (1, 5))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoModelForCausalLM

    folder = tiny.make_model(tmp_path_factory.mktemp("model"))
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def wanted(prompt: tuple[int, ...], seed: int = 0, temperature: float = 1.0, top_p: float = 1.0) -> Wanted:
    return Wanted(prompt, 6, temperature, top_p, seed)


def test_memory_for_a_token_follows_the_models_shape(network: Any) -> None:
    # SmolLM2-135M keeps 30 layers of 3 heads of 64; Qwen2.5-7B, which names no head's width, 28 of 4 of 128.
    smol = SimpleNamespace(
        num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, head_dim=64, hidden_size=576,
        intermediate_size=1536,
    )  # fmt: skip
    qwen = SimpleNamespace(
        num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4, hidden_size=3584, intermediate_size=18944
    )
    assert token_bytes(smol, 2) == 3 * 23_040 + 2 * (3 * 1536 + 6 * 576)
    assert token_bytes(qwen, 2) == 3 * 57_344 + 2 * (3 * 18944 + 6 * 3584)
    assert room(network) == FEWEST_TOKENS


def test_an_answer_does_not_depend_on_its_neighbours(network: Any) -> None:
    asked = [wanted(prompt, seed) for prompt in PROMPTS for seed in (1, 2)]
    alone = [draw(network, [one], END, pad=2)[0] for one in asked]
    assert draw(network, asked, END, pad=2) == alone
    assert len(set(alone)) > 3


def test_each_keeps_its_own_settings(network: Any) -> None:
    cold, short, warm = (
        wanted(PROMPTS[0], temperature=0.0),
        wanted(PROMPTS[1])._replace(max_tokens=2),
        wanted(PROMPTS[2]),
    )
    greedy = draw(network, [cold], END, pad=2)[0]
    together = draw(network, [cold, short, warm], END, pad=2)
    assert (together[0], len(together[1]) <= 2) == (greedy, True)
    assert draw(network, [cold._replace(seed=9)], END, pad=2)[0] == greedy


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.6)])
def test_first_tokens_come_as_often_as_the_network_says(network: Any, temperature: float, top_p: float) -> None:
    count = 3000
    asked = [wanted(PROMPTS[0], seed, temperature, top_p)._replace(max_tokens=1) for seed in range(count)]
    told = Counter(answer[0] for answer in draw(network, asked, END, pad=2))
    with torch.inference_mode():
        logits = network(torch.tensor([PROMPTS[0]])).logits[0, -1]
    chances = torch.softmax(logits / temperature, dim=-1)
    if top_p < 1:
        ordered, order = chances.sort(descending=True)
        chances[order[(ordered.cumsum(0) - ordered) >= top_p]] = 0
        chances /= chances.sum()
    for token, chance in enumerate(chances.tolist()):
        spread = 5 * (chance * (1 - chance) / count) ** 0.5
        assert abs(told[token] / count - chance) <= spread + 1e-9


def test_what_follows_the_end_is_left_out(network: Any) -> None:
    answers = draw(network, [wanted(PROMPTS[0], seed)._replace(max_tokens=20) for seed in range(40)], END, pad=2)
    ended = [answer for answer in answers if END & set(answer)]
    assert ended
    assert all(answer.index(2) == len(answer) - 1 for answer in ended)
