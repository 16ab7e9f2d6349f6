"""Texts of programs to vectors: a sentence-transformers model, by name on the hub or as a local folder.

The text that is embedded is the program's core, for tasks and examples alike, without a model's query prompt: both
sides are PyTorch programs. The only importer of sentence_transformers. Knows no index and no store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kb_ray.errors import ConfigError

Vectors = Any
"""numpy array [texts, dimension], float32, each row of length 1."""

PROBE = "class Probe(torch.nn.Module):\n    def forward(self, x):\n        return torch.softmax(x * 2.0, dim=-1)\n"
"""Embedded with each index: a model that does not give the same vector for this text is another model."""
_MAX_TOKENS = 1024
"""Longer texts are cut off: a program says early what it computes, and attention costs the square."""


class Embedder(Protocol):
    """What turns texts into vectors."""

    dimension: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """[texts, dimension] float32 of length 1, in their order. Texts are those of `program.Core`."""
        ...


class SentenceEmbedder:
    """A sentence-transformers model. ConfigError where it cannot be had.

    `model`: name on the hub, or folder. `device`: `cuda`, `cpu`, or None for a GPU where there is one.
    """

    def __init__(self, model: str, device: str | None = None, batch_size: int = 32) -> None:
        self._batch_size = batch_size
        self._model = _load(model, device)
        self._model.max_seq_length = min(self._model.max_seq_length or _MAX_TOKENS, _MAX_TOKENS)
        self.dimension = int(self._model.get_embedding_dimension())

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See Embedder. A text that occurs several times is embedded once."""
        distinct = list(dict.fromkeys(texts))
        vectors = self._model.encode(
            distinct, batch_size=self._batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        place = {text: number for number, text in enumerate(distinct)}
        found = np.asarray(vectors, dtype=np.float32).reshape(len(distinct), self.dimension)
        return np.ascontiguousarray(found[[place[text] for text in texts]])


def is_folder(model: str) -> bool:
    """Whether `model` is a folder of this machine rather than a name on the hub."""
    return Path(os.path.expanduser(model)).is_dir()


def _load(model: str, device: str | None) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ConfigError(
            "an embedding model needs sentence-transformers: pip install 'kb-ray[retrieve]', or use an index "
            "built with --embed-with lexical"
        ) from None
    folder = Path(os.path.expanduser(model))
    if not folder.is_dir() and (folder.is_absolute() or model.startswith((".", "~"))):
        raise ConfigError(f"embedding model {model}: no such folder")
    try:
        return SentenceTransformer(str(folder) if folder.is_dir() else model, device=device)
    # Anything can come out of here: errors of the hub's client, of transformers, of a broken folder.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"embedding model {model} cannot be loaded: {reason[:200]}") from error
