"""A model that plays a script: the same answer to the same task and turn, every time, at once.

For demonstrations and tests of everything around a model. Which answers there are is the script's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kb_ray.errors import ModelError
from kb_ray.extract import split_reasoning
from kb_ray.model.builtin_script import builtin_script
from kb_ray.model.completer import ModelInfo, Request
from kb_ray.model.script_file import ScriptLine, read_script
from kb_ray.records import Completion, Message, Usage

LATENCY_S = 0.01
"""Seconds that every answer takes."""


class ScriptedCompleter:
    """A Completer. Samples and attempts of a task all get the same answers."""

    model = "scripted"
    window: int | None = None

    def __init__(self, load: Callable[[], tuple[ScriptLine, ...]]) -> None:
        """`load` gives the script; it is called once, when first needed, and may raise ConfigError."""
        self._load = load
        self._script: tuple[ScriptLine, ...] | None = None

    @classmethod
    def from_file(cls, path: str | None) -> ScriptedCompleter:
        """Plays a JSONL file (see script_file.py); None is the script of the built-in tasks.

        The file is read by `check`, or by the first answer.
        """
        return cls(builtin_script if path is None else lambda: read_script(path))

    async def complete(self, request: Request) -> Completion:
        """The answer of the first line that matches the task. ModelError where none does.

        Thinking between <think> tags is taken out of the text, as from a server without a field for it.
        Usage counts words, since there are no tokens.
        """
        started = time.monotonic()
        line = next((line for line in self._lines() if line.matches(request.task_id)), None)
        if line is None:
            raise ModelError(f"the script has no answer to task {request.task_id}; add a line for it")
        await asyncio.sleep(LATENCY_S)
        text, reasoning, finish_reason = line.answer(request.turn)
        words = len(text.split()) + len((reasoning or "").split())
        answer, thought = (text, reasoning) if reasoning else split_reasoning(text, cut=finish_reason == "length")
        return Completion(
            text=answer,
            reasoning=thought,
            finish_reason=finish_reason,
            usage=Usage(
                prompt_tokens=_words(request.messages),
                completion_tokens=words,
            ),
            latency_s=time.monotonic() - started,
            model=self.model,
            sampling=request.sampling,
        )

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Words, as in usage."""
        return _words(messages)

    async def check(self) -> ModelInfo:
        """Reads the script. ConfigError where it cannot be read or a line is malformed."""
        self._lines()
        return ModelInfo(model=self.model)

    async def aclose(self) -> None:
        """Nothing to free."""

    def _lines(self) -> tuple[ScriptLine, ...]:
        if self._script is None:
            self._script = self._load()
        return self._script


def _words(messages: Sequence[Message]) -> int:
    return sum(len(message.content.split()) for message in messages)
