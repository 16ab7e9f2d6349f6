"""The rows of an index nearest to a text: by words, by exact products, or by FAISS, each language for itself.

Never gives fewer than asked while there are more: what an approximate index leaves out is looked for exactly. Does not
know which rows may be shown, but for their language.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from kb_ray.errors import ConfigError
from kb_ray.retrieve import exact
from kb_ray.retrieve.ann import AnnSearch, check_available
from kb_ray.retrieve.embedding import PROBE, Embedder, SentenceEmbedder
from kb_ray.retrieve.example import Language
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.lexical import LexicalSearch

_SAME_MODEL = 0.99
"""Cosine of the probe's vectors from which two models are one: half precision stays above."""


class Nearest:
    """Looks for the nearest in one index. Thread-safe.

    `model`: name or folder of the embedding model, where it is not the one that the index names. ConfigError where the
    model is another than the index was built with, or one is named for an index of words.
    """

    def __init__(self, index: Index, model: str | None = None) -> None:
        self._index = index
        self._rows: dict[Language, Any] = {
            "triton": np.flatnonzero(~index.is_cuda), "cuda": np.flatnonzero(index.is_cuda),
        }  # fmt: skip
        self._embedder: Embedder | None = None
        self._lexical: LexicalSearch | None = None
        self._ann: dict[Language, AnnSearch] = {}
        if index.info.embedding.kind == "lexical":
            if model is not None:
                raise ConfigError(
                    f"--rag-model {model}: index {index.uri} is one of words, without an embedding model: leave it out"
                )
            self._lexical = LexicalSearch(index.texts())
        else:
            self._embedder = _embedder(index, model)
            self._ann = {language: self._opened(language) for language in index.ann_paths}
        self._lock = threading.Lock()

    @property
    def is_cosine(self) -> bool:
        """Whether scores are cosines."""
        return self._lexical is None

    def count(self, languages: Sequence[Language]) -> int:
        """Rows in these languages."""
        return sum(len(self._rows[language]) for language in languages)

    def asked(self, text: str) -> Any:
        """What `top` takes for a text: to be made once for several looks."""
        if self._embedder is None:
            return text
        with self._lock:
            return self._embedder.embed([text])[0]

    def top(self, asked: Any, languages: Sequence[Language], count: int) -> tuple[Any, Any]:
        """(rows, scores) of the `count` nearest in these languages, the nearest first; fewer only where all are there.

        By FAISS they are about the nearest.
        """
        count = min(count, self.count(languages))
        if self._ann:
            found = self._approximate(asked, languages, count)
            if found is not None:
                return found
        scores = self._lexical.scores(asked) if self._lexical else exact.inner_products(self._index.vectors, asked)
        for language, rows in self._rows.items():
            if language not in languages:
                scores[rows] = -np.inf
        return exact.top(scores, count)

    def _approximate(self, asked: Any, languages: Sequence[Language], count: int) -> tuple[Any, Any] | None:
        """None where FAISS gives fewer than there are: it looks at a part of its lists or of its graph."""
        found, scores = [], []
        for language in languages:
            there = self._rows[language]
            if not len(there):
                continue
            rows, values = self._ann[language].top(asked, min(count, len(there)))
            if len(rows) < min(count, len(there)):
                return None
            found.append(there[rows])
            scores.append(values)
        if not found:
            return None
        rows, values = np.concatenate(found), np.concatenate(scores)
        best, kept = exact.top(values, count)
        return rows[best], kept

    def _opened(self, language: Language) -> AnnSearch:
        check_available()
        dimension = self._index.info.embedding.dimension or 0
        return AnnSearch(self._index.ann_paths[language], len(self._rows[language]), dimension)


def _embedder(index: Index, model: str | None) -> Embedder:
    built_with = index.info.embedding
    name = model or built_with.model or ""
    try:
        # The GPUs are the verifier's and the model's.
        embedder = SentenceEmbedder(name, "cpu")
    except ConfigError as error:
        advice = "" if model else "; --rag-model names where the model lies on this machine"
        raise ConfigError(f"index {index.uri}: {error}{advice}") from None
    if embedder.dimension != built_with.dimension:
        raise ConfigError(
            f"index {index.uri}: built with {built_with.model}, whose vectors have {built_with.dimension} numbers; "
            f"those of {name} have {embedder.dimension}: use the same model, or build another index"
        )
    likeness = float(np.dot(embedder.embed([PROBE])[0], np.asarray(built_with.probe, dtype=np.float32)))
    # Also where it is no number.
    if not likeness >= _SAME_MODEL:
        raise ConfigError(
            f"index {index.uri}: built with {built_with.model}; {name} gives other vectors (cosine {likeness:.3f} "
            "for the same program): use the same model, or build another index"
        )
    return embedder
