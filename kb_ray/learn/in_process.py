"""The policy of a learner as a sampler beside it: always the newest weights, on the devices that learn."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from kb_ray.learn.chat import ChatTokens
from kb_ray.learn.generating import Drawing
from kb_ray.learn.samples import Drawn
from kb_ray.records import Message, Sampling


class Draws(Protocol):
    """A learner that can be drawn from: `learner.Learner`, or several that share the prompts."""

    tokenizer: Any
    steps: int

    @property
    def window(self) -> int | None: ...

    def draw(
        self, prompts: Sequence[tuple[int, ...]], drawing: Drawing, ends: Collection[int], seed: int
    ) -> list[Drawn]: ...


class InProcessSampler:
    """A `rollouts.Sampler`. Not to be drawn from while the learner takes a step: both use the same weights."""

    def __init__(self, learner: Draws, run: str, sampling: Sampling, batch_tokens: int) -> None:
        self._learner, self._run = learner, run
        self.sampling = sampling
        self._chat = ChatTokens(learner.tokenizer)
        self._drawing = Drawing(sampling.temperature, sampling.max_tokens, batch_tokens)
        self.window = learner.window

    @property
    def policy(self) -> int:
        """Steps that the learner has taken."""
        return self._learner.steps

    @property
    def model(self) -> str:
        """The run and the step."""
        return f"{self._run}-step{self.policy:06d}"

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of a conversation up to where an answer begins."""
        return self._chat.prompt([{"role": m.role, "content": m.content} for m in messages])

    def text(self, tokens: Sequence[int]) -> str:
        """What an answer's tokens say, without those that only end it."""
        return self._chat.text(tokens)

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        """One answer to each prompt; the event loop goes on meanwhile."""
        return await asyncio.to_thread(self._learner.draw, prompts, self._drawing, self._chat.end, seed % (1 << 31))
