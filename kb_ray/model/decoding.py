"""Token after token from a network, many prompts at once: only the newest token is computed, keys and values are kept.

On a GPU the step for one token is recorded once, as a CUDA graph, and replayed: a small network takes longer to launch
than to compute. Knows a causal language model of transformers; which token is chosen is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor

Choose = Callable[[Tensor], Tensor]
"""Scores [prompts, vocabulary] -> the token of each prompt [prompts]."""
_ASKED_EVERY = 16
"""Tokens after which it is asked whether all answers have ended: the question waits for the GPU."""


def decode(
    network: Any, tokens: Tensor, attention: Tensor, choose: Choose, most: int, ends: Collection[int], pad: int
) -> Tensor:
    """Answers [prompts, at most `most`] on the network's device, each filled up with `pad` behind the first of `ends`.

    `tokens`, `attention` [prompts, longest]: padded on the left. `choose` is also asked about answers that have ended.
    """
    device = next(network.parameters()).device
    keeping = Fixed if _recordable(network, device) else Growing
    with torch.no_grad():
        steps = keeping(network, tokens.to(device), attention.to(device), most)
        return _answers(steps, choose, most, torch.tensor(sorted(ends), device=device), pad)


class Steps(Protocol):
    """A network that has read its prompts."""

    def scores(self) -> Tensor:
        """[prompts, vocabulary] of what comes next."""
        ...

    def take(self, chosen: Tensor) -> None:
        """These tokens [prompts] come next."""
        ...


def _answers(steps: Steps, choose: Choose, most: int, ends: Tensor, pad: int) -> Tensor:
    found, ended = list[Tensor](), None
    for count in range(1, most + 1):
        chosen = choose(steps.scores())
        if ended is not None:
            chosen = torch.where(ended, pad, chosen)
        found.append(chosen)
        over = torch.isin(chosen, ends)
        ended = over if ended is None else ended | over
        if count == most or (count % _ASKED_EVERY == 0 and bool(ended.all())):
            break
        steps.take(chosen)
    return torch.stack(found, dim=1)


def _recordable(network: Any, device: torch.device) -> bool:
    """Whether its step can be a graph: one GPU, weights as they are, a cache of fixed size."""
    own = network.get_base_model() if hasattr(network, "peft_config") else network
    # Of 8 bits, which columns are kept apart is decided by looking at the numbers.
    whole = not getattr(own, "is_quantized", False) and len(set(getattr(own, "hf_device_map", {}).values())) <= 1
    return device.type == "cuda" and whole and bool(getattr(own, "_can_compile_fullgraph", False))


class Growing:
    """Keys and values grow with each token."""

    def __init__(self, network: Any, tokens: Tensor, attention: Tensor, most: int) -> None:
        """`most` is only of interest where room is made for it."""
        from transformers import DynamicCache

        self._network, self._attention = network, attention
        self._kept = DynamicCache(config=network.config)
        self._positions = _positions(attention)
        self._read(tokens)

    def scores(self) -> Tensor:
        """[prompts, vocabulary] of what comes next."""
        return self._scores

    def take(self, chosen: Tensor) -> None:
        """These tokens [prompts] come next."""
        self._attention = torch.cat([self._attention, torch.ones_like(self._attention[:, :1])], dim=1)
        self._positions = self._positions[:, -1:] + 1
        self._read(chosen.unsqueeze(1))

    def _read(self, tokens: Tensor) -> None:
        self._scores = _last(self._network, tokens, self._attention, self._positions, self._kept)


class Fixed:
    """Room for all keys and values from the beginning, so that every step is the same work at the same place."""

    def __init__(self, network: Any, tokens: Tensor, attention: Tensor, most: int) -> None:
        """Room for `most` tokens behind the prompts."""
        from transformers import StaticCache

        prompts, longest = tokens.shape
        self._network = network
        self._kept = StaticCache(config=network.config, max_cache_len=longest + most)
        self._attention = torch.zeros((prompts, longest + most), dtype=attention.dtype, device=tokens.device)
        self._attention[:, :longest] = attention
        positions = _positions(attention)
        self._scores = _last(network, tokens, self._attention, positions, self._kept)
        self._token = torch.zeros_like(tokens[:, :1])
        self._position = positions[:, -1:].clone()
        self._place = torch.tensor([longest - 1], device=tokens.device)
        self._taken = 0
        self._graph: Any = None

    def scores(self) -> Tensor:
        """[prompts, vocabulary] of what comes next."""
        return self._scores

    def take(self, chosen: Tensor) -> None:
        """These tokens [prompts] come next. The first is computed as it comes, which readies the libraries for the
        recording of the second; the others replay that."""
        self._token.copy_(chosen.unsqueeze(1))
        self._taken += 1
        if self._taken == 1 or not self._token.is_cuda:
            self._scores = self._step()
            return
        if self._graph is None:
            self._graph, self._scores = _recorded(self._step)
        self._graph.replay()

    def _step(self) -> Tensor:
        """All that changes is changed in place."""
        self._place.add_(1)
        self._position.add_(1)
        self._attention.index_fill_(1, self._place, 1)
        return _last(self._network, self._token, self._attention, self._position, self._kept)


def _recorded(step: Callable[[], Tensor]) -> tuple[Any, Tensor]:
    """(graph, what `step` returned, filled anew by each replay).

    Not by `torch.cuda.graph`, which gives all free memory back before: to ask for it again takes a driver's lock each
    time, and where candidates are judged on the same host that is held most of the time.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Other threads of this process may talk to the GPU meanwhile.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            scores = step()
        except BaseException:
            # What went wrong is to be told, not that the recording then could not end well.
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph, scores


def _positions(attention: Tensor) -> Tensor:
    """Of each token of a prompt, counted from its first."""
    return (attention.cumsum(-1) - 1).clamp(min=0)


def _last(network: Any, tokens: Tensor, attention: Tensor, positions: Tensor, kept: Any) -> Tensor:
    """Scores [prompts, vocabulary] behind the last of `tokens`."""
    output = network(
        input_ids=tokens, attention_mask=attention, position_ids=positions, past_key_values=kept, use_cache=True,
        logits_to_keep=1,
    )  # fmt: skip
    scores: Tensor = output.logits[:, -1]
    return scores
