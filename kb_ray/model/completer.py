"""What a model is to the rest: something that answers one chat request.

Knows no transport and no retry policy: those belong to the implementations beside it. Knows nothing of
episodes either; the task, turn, sample and attempt of a request only say which answer is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kb_ray.records import Completion, Message, Record, Sampling


class Request(Record):
    """One chat request."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    task_id: str
    turn: int = 0
    """0-based turn within the episode."""
    sample: int = 0
    """0-based sample index of the task."""
    attempt: int = 1
    """1 for the first try of the episode."""


class ModelInfo(Record):
    """What a model server says of the model that will answer."""

    model: str
    max_model_len: int | None = None
    """Tokens of prompt and answer together at most; None where the server does not tell."""
    adapter_of: str | None = None
    """The model that it is a LoRA adapter of, where the server says so."""
    in_process: bool = False
    """Whether it answers within this process, and not at a server's address."""


class Completer(Protocol):
    """A source of completions. One instance serves many concurrent requests of one event loop."""

    model: str
    """Name of the model that answers, as recorded in every completion."""

    window: int | None
    """Tokens of prompt and answer together at most, once `check` was told; None where nobody says."""

    async def complete(self, request: Request) -> Completion:
        """The answer to `request`.

        Raises ContextError when the prompt does not fit the model's window, and ModelError when there is no
        answer after the implementation's own retries.
        """
        ...

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Tokens of `messages` as a prompt, the chat template's own included; None where nobody counts them.

        Never raises: who asks can estimate.
        """
        ...

    async def check(self) -> ModelInfo:
        """Says, within 10 seconds, which model will answer.

        Raises ConfigError when the server does not answer, does not serve the model (the message lists those
        that it serves) or refuses the key.
        """
        ...

    async def aclose(self) -> None:
        """Frees connections. The instance is not used afterwards."""
        ...
