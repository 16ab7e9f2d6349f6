"""Answers token by token from a vLLM server: prompts are given as tokens, and what was drawn comes with probabilities.

By `POST {base_url}/completions` with vLLM's `return_token_ids`. Knows no text, no chat template and no weights.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from kb_ray.errors import ModelError
from kb_ray.model.posting import Posting, Tries
from kb_ray.model.wire import Malformed, json_object
from kb_ray.records import Sampling


class TokenAnswer(NamedTuple):
    """What was drawn."""

    tokens: tuple[int, ...]
    """With the token that ended it, where one did."""
    logprobs: tuple[float, ...]
    """One for each token: as the server computes them, which is before temperature unless its `logprobs_mode` is
    `processed_logprobs`."""
    truncated: bool
    """Whether the limit of tokens ended it."""


class TokenClient:
    """A vLLM server, asked for tokens. For one event loop."""

    def __init__(self, base_url: str, api_key: str | None = None, *, max_concurrent: int = 64) -> None:
        self._server = Posting(base_url, api_key, Tries(max_concurrent=max_concurrent))

    async def draw(
        self, model: str, prompt: Sequence[int], sampling: Sampling, seed: int, ends: Collection[int]
    ) -> TokenAnswer:
        """One answer of `model` to `prompt`; nothing but the temperature shapes the distribution.

        `ends`: tokens that end an answer. ContextError and ModelError as `Posting.post`; ModelError too where another
        model answers than was asked for, or the server tells no tokens.
        """
        body = body_of(model, prompt, sampling, seed, ends)
        answer, _ = await self._server.post("completions", body, partial(read, model=model), f"model {model}")
        return answer

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._server.aclose()


def body_of(
    model: str, prompt: Sequence[int], sampling: Sampling, seed: int, ends: Collection[int]
) -> dict[str, object]:
    """The JSON body. What a model's own generation settings would add is set to have no effect."""
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": seed,
        "logprobs": 0,
        "stop_token_ids": sorted(ends),
        "return_token_ids": True,
    }


def read(answer: bytes, model: str) -> TokenAnswer:
    """What was drawn.

    Malformed where it is no completion; ModelError where it is none of this model, or has no tokens.
    """
    data = json_object(answer)
    if data.get("model") != model:
        raise ModelError(f"asked for {model}, but {data.get('model')} answered: nothing may be learned from that")
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise Malformed("an answer without a choice")
    tokens, told = choices[0].get("token_ids"), choices[0].get("logprobs")
    if not isinstance(tokens, list) or not isinstance(told, dict) or not isinstance(told.get("token_logprobs"), list):
        raise ModelError(f"the server of {model} tells no tokens with their probabilities: it must be vLLM")
    logprobs = told["token_logprobs"]
    if len(tokens) != len(logprobs):
        raise ModelError(f"the server of {model} tells {len(logprobs)} probabilities for {len(tokens)} tokens")
    truncated = choices[0].get("finish_reason") == "length"
    return TokenAnswer(tuple(map(int, tokens)), tuple(map(float, logprobs)), truncated)
