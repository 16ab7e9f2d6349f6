"""Search by words, for machines without an embedding model: BM25 over the words of programs' texts, by bm25s.

Made from an index's programs whenever it is opened, which takes a second for a few thousand. The only importer of
bm25s.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from kb_ray.errors import ConfigError
from kb_ray.retrieve.program import tokens


def check_available() -> None:
    """ConfigError where bm25s is not installed."""
    try:
        import bm25s  # noqa: F401
    except ImportError:
        raise ConfigError("lexical search needs bm25s: pip install 'kb-ray[retrieve]'") from None


class LexicalSearch:
    """BM25 over the texts of an index's programs, in their order."""

    def __init__(self, texts: Sequence[str]) -> None:
        check_available()
        import bm25s

        # It logs at its own level, whatever the program's.
        logging.getLogger("bm25s").setLevel(logging.WARNING)
        words, self._count = [_words(text) for text in texts], len(texts)
        self._index = bm25s.BM25()
        # It makes nothing of no word at all.
        self._has_words = any(words)
        if self._has_words:
            self._index.index(words, show_progress=False)

    def scores(self, text: str) -> Any:
        """[n] float32: BM25 of each program for this text; 0 where no word is shared."""
        known = self._index.vocab_dict if self._has_words else {}
        words = [word for word in _words(text) if word in known]
        if not words:
            return np.zeros(self._count, dtype=np.float32)
        return np.asarray(self._index.get_scores(words), dtype=np.float32)


def _words(text: str) -> list[str]:
    return [token for token in tokens(text) if token[0].isalnum() or token[0] == "_"]
