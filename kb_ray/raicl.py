"""Opening prompts with retrieved examples: what generate, evaluate and training need to use an index.

Checks that settings and template go together, looks examples up, fills them into the template and says what was used.
Knows neither how an index is made nor how an episode goes on.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError
from kb_ray.prompts.budget import Messages
from kb_ray.prompts.examples import ShownPair, example_tokens, examples_text
from kb_ray.prompts.opening import PromptSetting, opening_messages, shows_examples
from kb_ray.records import Retrieved, Task
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.search import Limits, Search

_HELD = 256
"""Openings kept for further samples of their tasks."""
_NONE_FOUND = "None was found for this program."


@dataclass(frozen=True)
class ExampleSettings:
    """Which examples are wanted, and where they come from."""

    index: str
    """Folder or s3://bucket/prefix of the index."""
    count: int = 3
    tokens: int = 12_000
    """Of all examples of a prompt, at most, rather overestimated."""
    overlap: float = 0.9
    """Share of token runs from which an example counts as the task itself, 0 to 1."""
    cuda: bool = False
    """Whether CUDA examples may be shown."""
    model: str | None = None
    """Embedding model, where it lies elsewhere than the index says."""


class Examples:
    """Openings with examples from one index. Thread-safe. ConfigError where the index cannot be used."""

    def __init__(self, settings: ExampleSettings, room: int | None = None) -> None:
        """`room`: tokens that examples may take in the model's window, where it is known."""
        self._settings = settings
        self._search = Search(Index(settings.index), _tokens, settings.model)
        tokens = settings.tokens if room is None else min(settings.tokens, max(0, room))
        self._limits = Limits(settings.count, tokens, settings.overlap, settings.cuda)
        self._lock = threading.Lock()
        self._held: dict[tuple[str, PromptSetting], tuple[Messages, Retrieved]] = {}

    @property
    def identity(self) -> dict[str, Any]:
        """What of it changes prompts, by the names of the flags: a part of a run's fingerprint."""
        return {
            "rag-index": self._search.index.info.identity,
            "raicl-k": self._settings.count,
            "raicl-tokens": self._settings.tokens,
            "raicl-overlap": self._settings.overlap,
            "raicl-cuda": self._settings.cuda,
        }

    @property
    def summary(self) -> str:
        """The index in one line, for people."""
        info = self._search.index.info
        how = info.embedding.model or "lexical"
        return f"{self._settings.count} from {info.count} of {self._search.index.uri} ({how}, {info.identity})"

    def opening(self, task: Task, prompt: PromptSetting) -> tuple[Messages, Retrieved]:
        """The first messages for a task, and what is in them. Looks up once for all samples of a task."""
        key = (task.task_id, prompt)
        with self._lock:
            if key not in self._held:
                if len(self._held) >= _HELD:
                    del self._held[next(iter(self._held))]
                self._held[key] = self._made(task, prompt)
            return self._held[key]

    def _made(self, task: Task, prompt: PromptSetting) -> tuple[Messages, Retrieved]:
        found, retrieved = self._search.examples(task.reference_code, self._limits, task.task_id)
        return opening_messages(task, prompt, examples_text([_pair(e) for e in found]) or _NONE_FOUND), retrieved


def open_examples(config: RunConfig, window: int | None) -> Examples | None:
    """The examples that a run's settings ask for; None where they ask for none.

    `window`: of the model, tokens, where it is known: examples take at most half of what it leaves for the prompt.
    ConfigError where template and index do not go together, or the index cannot be used.
    """
    wanted = shows_examples(config.prompt)
    if config.rag_index is None:
        if wanted:
            raise ConfigError(f"--prompt {config.prompt}: it shows examples: give the index with --rag-index")
        return None
    if not wanted:
        raise ConfigError(
            f"--rag-index: the template {config.prompt} has no $examples: use --prompt raicl, or put it there"
        )
    settings = ExampleSettings(
        index=config.rag_index,
        count=config.raicl_k,
        tokens=config.raicl_tokens,
        overlap=config.raicl_overlap,
        cuda=config.raicl_cuda,
        model=config.rag_model,
    )
    return Examples(settings, room=None if window is None else (window - config.max_tokens) // 2)


def opening(examples: Examples | None, task: Task, prompt: PromptSetting) -> tuple[Messages, Retrieved | None]:
    """The first messages for a task, with examples or without."""
    return examples.opening(task, prompt) if examples else (opening_messages(task, prompt), None)


def _pair(example: Example) -> ShownPair:
    return ShownPair(example.pytorch_code, example.kernel_code, example.language)


def _tokens(example: Example) -> int:
    return example_tokens(_pair(example))
