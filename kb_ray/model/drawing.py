"""Answers of a network to several prompts at once, each drawn with its own seed, temperature and top_p.

Gumbel's trick: the largest of (log-probability + noise) is a draw. The noise of a row depends on its own seed alone,
so that an answer does not depend on who else is asked for at the same time, but for the last bits of the sums. Knows
tokens, no text and no queue.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kb_ray.model.decoding import decode

FEWEST_TOKENS = 65_536
_SEEDS = 1 << 63


class Wanted(NamedTuple):
    """One answer to be drawn."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    """0: the most likely token each time."""
    top_p: float
    seed: int


def draw(network: Any, wanted: Sequence[Wanted], ends: Collection[int], pad: int) -> list[tuple[int, ...]]:
    """The tokens of each answer, in their order, with the one of `ends` that ended it, where one did."""
    tokens, attention = padded([one.prompt for one in wanted], pad)
    most = max(one.max_tokens for one in wanted)
    noisy = _Noisy(wanted, next(network.parameters()).device)
    answers = decode(network, tokens, attention, lambda scores: noisy(scores).argmax(-1), most, ends, pad).tolist()
    return [until_end(row[: one.max_tokens], ends) for row, one in zip(answers, wanted, strict=True)]


def room(network: Any) -> int:
    """Tokens of prompts and answers to have in memory at once: on a GPU what a quarter of its free memory takes, since
    kernels may be judged beside."""
    device = next(network.parameters()).device
    if device.type != "cuda":
        return FEWEST_TOKENS
    free, _ = torch.cuda.mem_get_info(device)
    fit: int = free // 4 // token_bytes(network.config, network.dtype.itemsize)
    return max(FEWEST_TOKENS, fit)


def token_bytes(config: Any, itemsize: int) -> int:
    """Bytes of memory for a token: keys and values of all layers, and what one layer works on while prompts are read.

    Keys and values count three times: they are copied as they grow, and repeated for the heads that share them.
    """
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    wide = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    kept: int = 2 * config.num_hidden_layers * heads * width
    worked: int = 3 * wide + 6 * config.hidden_size
    return itemsize * (3 * kept + worked)


def padded(prompts: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """(tokens, attention) [prompts, longest], both padded on the left, so that all answers begin at the same place."""
    longest = max(map(len, prompts))
    tokens = torch.full((len(prompts), longest), pad)
    attention = torch.zeros_like(tokens)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        attention[row, longest - len(prompt) :] = 1
    return tokens, attention


def until_end(tokens: Sequence[int], ends: Collection[int]) -> tuple[int, ...]:
    """An answer with the token that ends it; what follows in its row is padding."""
    last = next((i for i, token in enumerate(tokens) if token in ends), None)
    return tuple(tokens if last is None else tokens[: last + 1])


class _Noisy:
    """Scores whose largest is a draw."""

    def __init__(self, wanted: Sequence[Wanted], device: torch.device) -> None:
        self._rows = [i for i, one in enumerate(wanted) if one.temperature > 0]
        drawn = [wanted[i] for i in self._rows]
        self._temperature = torch.tensor([[one.temperature] for one in drawn], device=device)
        self._top_p = torch.tensor([[one.top_p] for one in drawn], device=device)
        self._noise = [torch.Generator(device).manual_seed(one.seed % _SEEDS) for one in drawn]

    def __call__(self, scores: Tensor) -> Tensor:
        if not self._rows:
            return scores
        logprobs = torch.log_softmax(scores[self._rows].float() / self._temperature, dim=-1)
        if bool((self._top_p < 1).any()):
            logprobs = _nucleus(logprobs, self._top_p)
        uniform = torch.stack([
            torch.rand(logprobs.shape[-1], generator=one, device=logprobs.device) for one in self._noise
        ])  # fmt: skip
        noisy = logprobs - torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        scores = scores.float().clone()
        scores[self._rows] = noisy
        return scores


def _nucleus(logprobs: Tensor, top_p: Tensor) -> Tensor:
    """-inf for all but the fewest most likely tokens that have `top_p` together (Holtzman and others, 2020)."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    kept = torch.where(before < top_p, ordered, torch.full_like(ordered, -torch.inf))
    return torch.full_like(logprobs, -torch.inf).scatter(-1, order, kept)
