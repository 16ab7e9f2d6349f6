"""The policy as adapters that a vLLM server loads by name: a published step answers while the learner goes on.

What an adapter is called and where the server finds it is the publisher's to say; prompts are tokens of the learner's
own chat template, and answers are the tokens and probabilities that the server drew. Knows no file and no store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kb_ray.learn.chat import ChatTokens
from kb_ray.learn.samples import Drawn
from kb_ray.model.tokens_http import TokenClient
from kb_ray.records import Message, Sampling

_SEEDS = 1 << 31


class ServedSampler:
    """A `rollouts.Sampler` of published adapters. Draws go on while the learner takes a step."""

    def __init__(
        self, client: TokenClient, tokenizer: object, sampling: Sampling, window: int | None, model: str, policy: int
    ) -> None:
        """`model`: the adapter's name at the server; `policy`: the optimizer step after which it was published."""
        self._client, self._tokenizer = client, tokenizer
        self._chat = ChatTokens(tokenizer)
        self.sampling, self.window = sampling, window
        self._model, self._policy = model, policy

    @property
    def policy(self) -> int:
        """The optimizer step after which the adapter that answers was published."""
        return self._policy

    @property
    def model(self) -> str:
        """The adapter's name at the server."""
        return self._model

    async def at(self, model: str, policy: int) -> ServedSampler:
        """The same with another adapter, which the server has loaded by then; draws under way stay with theirs.

        ModelError where it cannot be loaded. ray.serve.llm fails requests that make it load one adapter twice at once:
        one request goes first.
        """
        asked = self._chat.prompt([{"role": "user", "content": ""}])
        await self._client.draw(model, asked, Sampling(max_tokens=1), 0, self._chat.end)
        return ServedSampler(self._client, self._tokenizer, self.sampling, self.window, model, policy)

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of a conversation up to where an answer begins."""
        return self._chat.prompt([{"role": m.role, "content": m.content} for m in messages])

    def text(self, tokens: Sequence[int]) -> str:
        """What an answer's tokens say, without those that only end it."""
        return self._chat.text(tokens)

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        """One answer to each prompt, in their order. ModelError where one cannot be had: the others are given up."""
        tasks = [asyncio.create_task(self._one(prompt, seed, n)) for n, prompt in enumerate(prompts)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, prompt: tuple[int, ...], seed: int, number: int) -> Drawn:
        own = (seed * 1_000_003 + number) % _SEEDS
        answer = await self._client.draw(self._model, prompt, self.sampling, own, self._chat.end)
        return Drawn(answer.tokens, answer.logprobs, answer.truncated)
