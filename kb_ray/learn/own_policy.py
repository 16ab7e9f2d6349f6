"""What samplers share that draw with a learner's newest weights: the policy's step and name, prompts and texts.

Knows a chat template and a count of steps; how answers are drawn is each sampler's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kb_ray.learn.chat import ChatTokens
from kb_ray.records import Message, Sampling


class Steps(Protocol):
    """A learner, as far as its policy is named."""

    tokenizer: Any
    steps: int


class OwnPolicy:
    """The part of a `rollouts.Sampler` that is not drawing."""

    def __init__(self, learner: Steps, run: str, sampling: Sampling) -> None:
        self._steps, self._run = learner, run
        self.sampling = sampling
        self._chat = ChatTokens(learner.tokenizer)

    @property
    def policy(self) -> int:
        """Steps that the learner has taken."""
        return self._steps.steps

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
