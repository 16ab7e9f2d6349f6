"""Examples for a task: embeds its program, searches the index, and chooses from the nearest.

Asks for ever more of the nearest until enough are left, or says why there are fewer. Does not know how examples are
worded in a prompt, nor what a run is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kb_ray.errors import ConfigError
from kb_ray.retrieve import exact
from kb_ray.retrieve.ann import AnnSearch, check_available
from kb_ray.retrieve.choosing import Candidate, choose, one_per_program, without_leaks
from kb_ray.retrieve.embedding import PROBE, Embedder, SentenceEmbedder
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.lexical import LexicalSearch
from kb_ray.retrieve.program import TEXT_VERSION, core, known_core, overlap
from kb_ray.retrieved import Retrieved, RetrievedExample

_FIRST_POOL = 32
_GROWTH = 4
_LARGEST_POOL = 512
_SAME_MODEL = 0.99
"""Cosine of the probe's vectors from which two models are one: half precision stays above."""


@dataclass(frozen=True)
class Limits:
    """What is asked of each lookup."""

    count: int
    """Examples wanted."""
    tokens: int
    """Of all examples together, at most, as `tokens_of` counts."""
    leak_overlap: float
    """Overlap of programs from which one is the other."""
    cuda: bool = False
    """Whether CUDA examples may be shown."""


class Search:
    """Looks examples up in one index. Thread-safe.

    `model`: name or folder of the embedding model, where it is not the one that the index names. `tokens_of` says what
    an example takes in a prompt. ConfigError where the model is another than the index was built with.
    """

    def __init__(self, index: Index, tokens_of: Callable[[Example], int], model: str | None = None) -> None:
        self.index, self._tokens_of = index, tokens_of
        embedding = index.info.embedding
        if embedding.text_version != TEXT_VERSION:
            raise ConfigError(
                f"index {index.uri}: built from texts of version {embedding.text_version}, this kb_ray makes "
                f"{TEXT_VERSION}: build it again"
            )
        self._embedder: Embedder | None = None
        self._lexical: LexicalSearch | None = None
        self._ann: AnnSearch | None = None
        if embedding.kind == "lexical":
            self._lexical = LexicalSearch(index.texts())
        else:
            self._embedder = _embedder(index, model)
            self._ann = _ann(index)
        self._by_digest, self._by_id = _rows_by(index.digests), _rows_by(index.example_ids)
        self._lock = threading.Lock()

    def nearest(self, text: str, limits: Limits, count: int) -> tuple[Any, Any]:
        """(rows, scores) of about the `count` nearest to the text of a program, the nearest first.

        CUDA examples are among them only where they may be shown.
        """
        vector = self._vector(text)
        if self._ann is not None:
            rows, scores = self._ann.top(vector, count)
            allowed = limits.cuda | ~self.index.is_cuda[rows]
            return rows[allowed], scores[allowed]
        found = self._lexical.scores(text) if self._lexical else exact.inner_products(self.index.vectors, vector)
        if not limits.cuda:
            found[self.index.is_cuda] = -np.inf
        return exact.top(found, count)

    def examples(self, program: str, limits: Limits, task_id: str | None = None) -> tuple[list[Example], Retrieved]:
        """Examples for a PyTorch program, the best first, and how they came about.

        What is of the same `task_id` counts as the task itself.
        """
        task = core(program)
        itself = self._itself(task.digest, task_id)
        size, whole = max(_FIRST_POOL, 4 * limits.count), min(len(self.index), _LARGEST_POOL)
        while True:
            rows, scores = self.nearest(task.text, limits, min(size + len(itself), len(self.index)))
            pool = [self._candidate(row, score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)
                    if row not in itself]  # fmt: skip
            found = without_leaks(pool, task, limits.leak_overlap)
            able = one_per_program(found.clean)
            chosen = choose(able, limits.count, limits.tokens)
            if len(chosen) == limits.count or size >= whole:
                break
            size *= _GROWTH
        leaks = len(itself) + len(found.leaked)
        note = None if len(chosen) == limits.count else _why(len(chosen), len(able), leaks, limits)
        shown = [self.index.example(candidate.row) for candidate in chosen]
        return shown, Retrieved(
            index=self.index.info.identity,
            wanted=limits.count,
            examples=tuple(
                RetrievedExample(
                    example_id=example.example_id, language=example.language, score=candidate.score,
                    overlap=overlap(candidate.core.runs, task.runs),
                )
                for example, candidate in zip(shown, chosen, strict=True)
            ),
            leak_overlap=limits.leak_overlap,
            leaks=leaks,
            note=note,
        )  # fmt: skip

    def _vector(self, text: str) -> Any:
        if self._embedder is None:
            return None
        with self._lock:
            return self._embedder.embed([text])[0]

    def _itself(self, digest: str, task_id: str | None) -> frozenset[int]:
        """Rows that are the task, wherever they rank."""
        return frozenset((*self._by_digest.get(digest, ()), *self._by_id.get(task_id or "", ())))

    def _candidate(self, row: int, score: float) -> Candidate:
        example = self.index.example(row)
        return Candidate(
            row=row, score=score, core=known_core(example.text, example.digest), merit=self.index.merits[row],
            tokens=self._tokens_of(example),
        )  # fmt: skip


def _why(found: int, able: int, leaks: int, limits: Limits) -> str:
    if able > found:
        return f"{found} of {limits.count}: no more fit into {limits.tokens} tokens"
    kinds = "" if limits.cuda else " that are not CUDA"
    return f"{found} of {limits.count}: the index has no more programs{kinds}, {leaks} rows being the task itself"


def _rows_by(values: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        found.setdefault(value, []).append(row)
    return found


def _embedder(index: Index, model: str | None) -> Embedder:
    built_with = index.info.embedding
    name = model or built_with.model or ""
    try:
        embedder = SentenceEmbedder(name)
    except ConfigError as error:
        advice = "" if model else "; --rag-model names where the model lies on this machine"
        raise ConfigError(f"index {index.uri}: {error}{advice}") from None
    if embedder.dimension != built_with.dimension:
        raise ConfigError(
            f"index {index.uri}: built with {built_with.model}, whose vectors have {built_with.dimension} numbers; "
            f"those of {name} have {embedder.dimension}: use the same model, or build another index"
        )
    likeness = float(np.dot(embedder.embed([PROBE])[0], np.asarray(built_with.probe, dtype=np.float32)))
    if likeness < _SAME_MODEL:
        raise ConfigError(
            f"index {index.uri}: built with {built_with.model}; {name} gives other vectors (cosine {likeness:.3f} "
            "for the same program): use the same model, or build another index"
        )
    return embedder


def _ann(index: Index) -> AnnSearch | None:
    if index.ann_path is None:
        return None
    check_available()
    return AnnSearch(index.ann_path, len(index), index.info.embedding.dimension or 0)
