"""The policy of a learner as a sampler in the same process: always the newest weights, one device."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kb_ray.learn.chat import ChatTokens
from kb_ray.learn.generating import Drawing, draw
from kb_ray.learn.learner import Learner
from kb_ray.learn.samples import Drawn
from kb_ray.records import Message, Sampling


class InProcessSampler:
    """A `rollouts.Sampler`. Not to be drawn from while the learner takes a step: both use the same weights."""

    def __init__(self, learner: Learner, run: str, sampling: Sampling, batch_tokens: int) -> None:
        self._learner, self._run = learner, run
        self.sampling = sampling
        self._chat = ChatTokens(learner.tokenizer)
        self._drawing = Drawing(sampling.temperature, sampling.max_tokens, batch_tokens)
        self.window: int | None = getattr(learner.network.config, "max_position_embeddings", None)

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
        return str(self._learner.tokenizer.decode(tokens, skip_special_tokens=True))

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        """One answer to each prompt; the event loop goes on meanwhile."""
        return await asyncio.to_thread(
            draw, self._learner.network, prompts, self._drawing, self._chat.end, seed % (1 << 31)
        )
