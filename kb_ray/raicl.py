"""Opening prompts with retrieved examples: what generate, evaluate and training need to use an index.

Checks that settings and template go together, looks examples up, fills them into the template and says what was used.
Knows neither how an index is made nor how an episode goes on.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError
from kb_ray.prompts.budget import Messages, estimated_tokens
from kb_ray.prompts.examples import ShownPair, example_tokens, examples_text
from kb_ray.prompts.opening import PromptSetting, opening_messages, shows_examples
from kb_ray.records import Retrieved, Task
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.index import Index, index_identity
from kb_ray.retrieve.search import LEAK_SIMILARITY, Limits, Search, shortage

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
    similarity: float = LEAK_SIMILARITY
    """Cosine of embeddings from which an example counts as the task itself; an index of words has none."""
    cuda: bool = False
    """Whether CUDA examples may be shown."""
    model: str | None = None
    """Embedding model, where it lies elsewhere than the index says."""


class Examples:
    """Openings with examples from one index. Thread-safe. ConfigError where the index cannot be used."""

    def __init__(self, settings: ExampleSettings, room: int | None = None) -> None:
        """`room`: tokens that a prompt may take in the model's window, where it is known: examples take at most half of
        it, and what template and task leave.
        """
        self._settings, self._room = settings, room
        self._search = Search(Index(settings.index), _tokens, settings.model)
        self._limits = Limits(
            settings.count, settings.tokens, settings.overlap, settings.cuda, leak_similarity=settings.similarity
        )
        self._lock = threading.Lock()
        self._held: dict[tuple[str, PromptSetting], tuple[Messages, Retrieved]] = {}
        # Of every task: a run may come back to one after thousands of others, and messages would take too much room.
        self._found: dict[tuple[str, PromptSetting], tuple[tuple[int, ...], Retrieved]] = {}

    def within(self, room: int) -> None:
        """From now on prompts take at most `room` tokens, see above; openings made before count no longer."""
        with self._lock:
            self._room = room
            self._held.clear()
            self._found.clear()

    @property
    def identity(self) -> dict[str, Any]:
        """What of it changes prompts, as flags are named: a part of a run's fingerprint."""
        return {
            "rag-index": self._search.index.info.identity,
            "raicl-k": self._settings.count,
            "raicl-tokens": self._settings.tokens,
            "raicl-overlap": self._settings.overlap,
            "raicl-similarity": self._settings.similarity,
            "raicl-cuda": self._settings.cuda,
        }

    @property
    def summary(self) -> str:
        """The index in one line, for people, and what lookups so far did not find."""
        info = self._search.index.info
        how = info.embedding.model or "lexical"
        told = f"{self._settings.count} from {info.count} of {self._search.index.uri} ({how}, {info.identity})"
        short = self.shortage
        return f"{told}; {short}" if short else told

    @property
    def shortage(self) -> str | None:
        """`2 of 9 tasks looked up got fewer than 3: 2 no more fit into ...`; None where all got as many as asked."""
        with self._lock:
            found = {task_id: retrieved for (task_id, _), (_, retrieved) in self._found.items()}
        short = [retrieved for retrieved in found.values() if retrieved.note is not None]
        if not short:
            return None
        none = sum(not retrieved.examples for retrieved in short)
        why = Counter(shortage(retrieved.note or "") for retrieved in short)
        reasons = ", ".join(f"{count} because {reason}" for reason, count in why.most_common())
        of_them = f" ({none} none)" if none else ""
        return f"{len(short)} of {len(found)} tasks looked up got fewer than {self._settings.count}{of_them}: {reasons}"

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
        without = opening_messages(task, prompt, _NONE_FOUND)
        limits = self._limits
        if self._room is not None:
            room = min(self._room // 2, self._room - estimated_tokens(without))
            limits = replace(limits, tokens=max(0, min(limits.tokens, room)))
        key = (task.task_id, prompt)
        if key not in self._found:
            self._found[key] = self._search.rows(task.reference_code, limits, task.task_id, task.entry_point)
        rows, retrieved = self._found[key]
        shown = examples_text([_pair(self._search.index.example(row)) for row in rows])
        return (opening_messages(task, prompt, shown) if shown else without), retrieved


def open_examples(config: RunConfig, window: int | None) -> Examples | None:
    """The examples that a run's settings ask for; None where they ask for none.

    `window`: of the model, tokens, where it is known: prompts with their examples fit beside --max-tokens.
    ConfigError where template and index do not go together, or the index cannot be used.
    """
    settings = None
    if config.rag_index is not None:
        settings = ExampleSettings(
            index=config.rag_index, count=config.raicl_k, tokens=config.raicl_tokens, overlap=config.raicl_overlap,
            cuda=config.raicl_cuda, model=config.rag_model,
        )  # fmt: skip
    return examples_for(config.prompt, settings, None if window is None else window - config.max_tokens)


def index_content(uri: str) -> str:
    """16 hex digits of what an index holds, wherever it lies. ConfigError where there is none."""
    return index_identity(uri)


def examples_for(
    template: str, settings: ExampleSettings | None, room: int | None = None, prompt: str = "--prompt",
    index: str = "--rag-index",
) -> Examples | None:  # fmt: skip
    """The examples for a template; None where neither template nor settings want any.

    `room`: tokens that a prompt may take, where it is known. `prompt`, `index`: the flags that errors name.
    ConfigError where template and index do not go together, or the index cannot be used.
    """
    check_together(template, settings is not None, prompt, index)
    return None if settings is None else Examples(settings, room)


def check_together(template: str, has_index: bool, prompt: str = "--prompt", index: str = "--rag-index") -> None:
    """ConfigError where a template shows examples and there is no index, or the other way round."""
    if shows_examples(template) == has_index:
        return
    if has_index:
        raise ConfigError(f"{index}: the template {template} has no $examples: use {prompt} raicl, or put it there")
    raise ConfigError(f"{prompt} {template}: it shows examples: give the index with {index}")


def opening(examples: Examples | None, task: Task, prompt: PromptSetting) -> tuple[Messages, Retrieved | None]:
    """The first messages for a task, with examples or without."""
    return examples.opening(task, prompt) if examples else (opening_messages(task, prompt), None)


def _pair(example: Example) -> ShownPair:
    return ShownPair(example.pytorch_code, example.kernel_code, example.language)


def _tokens(example: Example) -> int:
    return example_tokens(_pair(example))
