"""Answers of the model under training, drawn in this process: exact tokens with the probabilities they were drawn by.

Many prompts at once, padded on the left. Knows a network and its tokens; who asked, and what an answer is worth, is
told nowhere here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kb_ray.learn.batching import bucketed
from kb_ray.learn.samples import Drawn
from kb_ray.model.decoding import decode
from kb_ray.model.drawing import padded, until_end


class Drawing(NamedTuple):
    """How answers are drawn."""

    temperature: float = 1.0
    """0: the most likely token each time."""
    max_tokens: int = 4096
    batch_tokens: int = 65536
    """Tokens of prompts and answers that are in memory at once."""


def draw(
    network: Any, prompts: Sequence[Sequence[int]], drawing: Drawing, ends: Collection[int], seed: int
) -> list[Drawn]:
    """One answer to each prompt (tokens), in their order. The same seed and prompts give the same answers.

    `ends`: tokens that end an answer. Nothing but the temperature shapes the distribution, so that the probabilities
    told are those of the policy at that temperature.
    """
    torch.manual_seed(seed)
    found: dict[int, Drawn] = {}
    was_training = network.training
    network.eval()
    try:
        for indices in bucketed([len(p) + drawing.max_tokens for p in prompts], drawing.batch_tokens):
            answers = _batch(network, [prompts[i] for i in indices], drawing, ends)
            found.update(zip(indices, answers, strict=True))
    finally:
        network.train(was_training)
    return [found[i] for i in range(len(prompts))]


def _batch(network: Any, prompts: Sequence[Sequence[int]], drawing: Drawing, ends: Collection[int]) -> list[Drawn]:
    noted = list[Tensor]()

    def choose(scores: Tensor) -> Tensor:
        told = torch.log_softmax(scores.float() / (drawing.temperature or 1.0), dim=-1)
        chosen = torch.multinomial(told.exp(), 1) if drawing.temperature > 0 else told.argmax(-1, keepdim=True)
        noted.append(told.gather(-1, chosen).squeeze(-1))
        return chosen.squeeze(-1)

    pad = min(ends)
    answers = decode(network, *padded(prompts, pad), choose, drawing.max_tokens, ends, pad)
    told = torch.stack(noted, dim=1)
    return [_cut(row, values, ends) for row, values in zip(answers.tolist(), told.tolist(), strict=True)]


def _cut(tokens: list[int], logprobs: list[float], ends: Collection[int]) -> Drawn:
    """An answer up to the token that ends it; what follows in its row is padding."""
    answer = until_end(tokens, ends)
    return Drawn(answer, tuple(logprobs[: len(answer)]), truncated=answer[-1] not in ends)
