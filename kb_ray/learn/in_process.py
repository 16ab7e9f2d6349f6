"""The policy of a learner as a sampler beside it: always the newest weights, on the devices that learn."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from kb_ray.learn.generating import Drawing
from kb_ray.learn.own_policy import OwnPolicy
from kb_ray.learn.samples import Drawn
from kb_ray.records import Sampling


class Draws(Protocol):
    """A learner that can be drawn from: `learner.Learner`, or several that share the prompts."""

    tokenizer: Any
    steps: int

    @property
    def window(self) -> int | None: ...

    def draw(
        self, prompts: Sequence[tuple[int, ...]], drawing: Drawing, ends: Collection[int], seed: int
    ) -> list[Drawn]: ...


class InProcessSampler(OwnPolicy):
    """A `rollouts.Sampler`. Not to be drawn from while the learner takes a step: both use the same weights."""

    def __init__(self, learner: Draws, run: str, sampling: Sampling, batch_tokens: int) -> None:
        super().__init__(learner, run, sampling)
        self._learner = learner
        self._drawing = Drawing(sampling.temperature, sampling.max_tokens, batch_tokens)
        self.window = learner.window

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        """One answer to each prompt; the event loop goes on meanwhile."""
        return await asyncio.to_thread(self._learner.draw, prompts, self._drawing, self._chat.end, seed % (1 << 31))
