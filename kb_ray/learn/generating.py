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


class _Recorder:
    """A logits processor that changes nothing: it notes the probability of each token once that has been chosen."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature or 1.0
        self._before: Tensor | None = None
        self.noted: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.chosen(input_ids[:, -1])
        self._before = torch.log_softmax(scores.float() / self._temperature, dim=-1)
        return scores

    def chosen(self, tokens: Tensor) -> None:
        """These tokens followed; at the first call they are the prompts' last."""
        if self._before is not None:
            self.noted.append(self._before.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).cpu())
            self._before = None


def _batch(network: Any, prompts: Sequence[Sequence[int]], drawing: Drawing, ends: Collection[int]) -> list[Drawn]:
    from transformers import LogitsProcessorList

    device = next(network.parameters()).device
    pad = min(ends)
    tokens, attention = padded(prompts, pad)
    # The recorder sees what the network says before temperature is applied by generate itself.
    recorder = _Recorder(drawing.temperature)
    shape = {"do_sample": True, "temperature": drawing.temperature} if drawing.temperature > 0 else {"do_sample": False}
    with torch.no_grad():
        output = network.generate(
            input_ids=tokens.to(device), attention_mask=attention.to(device), max_new_tokens=drawing.max_tokens,
            eos_token_id=sorted(ends), pad_token_id=pad, top_k=0, top_p=1.0, repetition_penalty=1.0,
            logits_processor=LogitsProcessorList([recorder]), use_cache=True, **shape,
        )  # fmt: skip
    recorder.chosen(output[:, -1])
    answers, told = output[:, tokens.shape[1] :].cpu(), torch.stack(recorder.noted, dim=1)
    return [_cut(row, values, ends) for row, values in zip(answers.tolist(), told.tolist(), strict=True)]


def _cut(tokens: list[int], logprobs: list[float], ends: Collection[int]) -> Drawn:
    """An answer up to the token that ends it; what follows in its row is padding."""
    answer = until_end(tokens, ends)
    return Drawn(answer, tuple(logprobs[: len(answer)]), truncated=answer[-1] not in ends)
