"""Token after token from a network, many prompts at once: only the newest token is computed, keys and values are kept.

On a GPU the step for one token is recorded once and replayed: a small network takes longer to launch than to compute.
Knows a causal language model of transformers; which token is chosen is the caller's to say.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable, Collection
from contextlib import closing
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from kb_ray.model.recording import Looks, Recording, RecordingFailed

Choose = Callable[[Tensor], Tensor]
"""Scores [prompts, vocabulary] -> the token of each prompt [prompts]."""
_ASKED_EVERY = 16
"""Tokens after which it is asked whether all answers have ended: the question waits for the GPU."""
_log = logging.getLogger(__name__)
_unrecorded: weakref.WeakSet[Any] = weakref.WeakSet()
"""Networks whose step turned out not to be the same work each time."""


def decode(
    network: Any, tokens: Tensor, attention: Tensor, choose: Choose, most: int, ends: Collection[int], pad: int
) -> Tensor:
    """Answers [prompts, at most `most`] on the network's device, each filled up with `pad` behind the first of `ends`.

    `tokens`, `attention` [prompts, longest]: padded on the left. `choose` is also asked about answers that have ended.
    """
    device = next(network.parameters()).device
    keeping = Fixed if _recordable(network, device) else Growing
    with torch.no_grad(), closing(keeping(network, tokens.to(device), attention.to(device), most)) as steps:
        return _answers(steps, choose, most, torch.tensor(sorted(ends), device=device), pad)


class Steps(Protocol):
    """A network that has read its prompts."""

    def scores(self) -> Tensor:
        """[prompts, vocabulary] of what comes next."""
        ...

    def take(self, chosen: Tensor) -> None:
        """These tokens [prompts] come next."""
        ...

    def close(self) -> None:
        """There is nothing more to come: what `scores` returned may not be read any more."""
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
    """Whether its step can be recorded: one GPU, weights as they are, a cache of fixed size."""
    own = _base(network)
    # Of 8 bits, which columns are kept apart is decided by looking at the numbers.
    whole = not getattr(own, "is_quantized", False) and len(set(getattr(own, "hf_device_map", {}).values())) <= 1
    able = device.type == "cuda" and whole and bool(getattr(own, "_can_compile_fullgraph", False))
    return able and network not in _unrecorded and _all_on_the_gpu(own.config)


def _all_on_the_gpu(config: Any) -> bool:
    """Whether all that the cache knows is in tensors. A layer of a sliding window counts its tokens in Python, and
    decides by them where a key goes and what is seen: a replay would not count on."""
    from transformers.cache_utils import StaticCache, StaticLayer

    try:
        layers = StaticCache(config=config, max_cache_len=1).layers
    except (KeyError, ValueError):
        # There is none of fixed size for some kind of layer.
        return False
    return all(type(layer) is StaticLayer for layer in layers)


def _base(network: Any) -> Any:
    """The network of transformers, without PEFT around it."""
    return network.get_base_model() if hasattr(network, "peft_config") else network


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

    def close(self) -> None:
        """Nothing is held."""

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
        self._may_record = tokens.is_cuda
        self._recording: Recording | None = None

    def scores(self) -> Tensor:
        """[prompts, vocabulary] of what comes next."""
        return self._scores

    def take(self, chosen: Tensor) -> None:
        """These tokens [prompts] come next. The first is computed as it comes, which readies the libraries for the
        recording of the second; the others replay that."""
        self._token.copy_(chosen.unsqueeze(1))
        self._taken += 1
        if self._taken == 1:
            self._scores = self._first()
            return
        if self._taken == 2 and self._may_record:
            self._record()
        self._scores = self._recording.replay() if self._recording else self._step()

    def close(self) -> None:
        """Leaves the memory of the recording to the next one."""
        if self._recording is not None:
            del self._scores
            self._recording.close()
            self._recording = None

    def _first(self) -> Tensor:
        """A step during which it is seen whether another one could be other work."""
        with Looks() as looks:
            scores = self._step()
        if looks.any:
            self._may_record = False
            self._give_up("its step depends on what it computes")
        return scores

    def _record(self) -> None:
        try:
            self._recording = Recording(self._step, self._token.device)
        except RecordingFailed as error:
            if isinstance(error.__cause__, torch.OutOfMemoryError):
                # With fewer prompts, or once others have left, there may be room again.
                _log.warning("no memory to record a step in: these answers are drawn unrecorded (%s)", error)
            else:
                self._give_up(str(error))

    def _give_up(self, why: str) -> None:
        if self._network not in _unrecorded:
            _unrecorded.add(self._network)
            _log.warning("%s cannot be recorded, and answers more slowly: %s", type(_base(self._network)).__name__, why)

    def _step(self) -> Tensor:
        """All that changes is changed in place."""
        self._place.add_(1)
        self._position.add_(1)
        self._attention.index_fill_(1, self._place, 1)
        return _last(self._network, self._token, self._attention, self._position, self._kept)


def _positions(attention: Tensor) -> Tensor:
    """Of each token of a prompt, counted from its first."""
    return (attention.cumsum(-1) - 1).clamp(min=0)


def _last(network: Any, tokens: Tensor, attention: Tensor, positions: Tensor, kept: Any) -> Tensor:
    """Scores [prompts, vocabulary] behind the last of `tokens`."""
    output = network(
        input_ids=tokens, attention_mask=attention, position_ids=positions, use_cache=True, logits_to_keep=1,
        **{_cache_name(type(_base(network)).forward): kept},
    )  # fmt: skip
    scores: Tensor = output.logits[:, -1]
    return scores


@cache
def _cache_name(forward: Callable[..., Any]) -> str:
    """By which keys and values are given: transformers has begun to rename it, model by model."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"
