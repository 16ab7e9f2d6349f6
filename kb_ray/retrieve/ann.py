"""Approximate search with FAISS, for indexes too large to look at every vector. The only importer of faiss.

HNSW finds more per millisecond and holds a graph beside the vectors; IVF is smaller and built sooner. Parameters are
those that reached a recall of 0.95 at 10 on a million vectors (docs/measurements.md).
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from kb_ray.errors import ConfigError
from kb_ray.retrieve.layout import AnnKind

_NEIGHBOURS = 32
_BUILD_EFFORT = 80
_SEARCH_EFFORT = 128
_PROBED_SHARE = 0.03
_TRAINED_PER_LIST = 40


def check_available() -> None:
    """ConfigError where faiss is not installed."""
    try:
        import faiss  # noqa: F401
    except ImportError:
        raise ConfigError("--ann needs faiss: pip install 'kb-ray[retrieve]'") from None


def built(vectors: Any, kind: AnnKind) -> bytes:
    """A FAISS file over vectors [n, dimension] float32 of length 1, for inner products."""
    import faiss

    index = trained(vectors, kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        faiss.write_index(index, str(path))
        return path.read_bytes()


def trained(vectors: Any, kind: AnnKind) -> Any:
    """The faiss index itself."""
    import faiss

    count, dimension = vectors.shape
    index: Any
    if count < _TRAINED_PER_LIST:
        # Too few for a single list, or for a graph to be worth it.
        index = faiss.IndexFlatIP(dimension)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _BUILD_EFFORT
    else:
        lists = max(1, min(4 * math.isqrt(count), count // _TRAINED_PER_LIST))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.train(vectors[:: max(1, count // (lists * _TRAINED_PER_LIST))])
    index.add(vectors)
    return index


class AnnSearch:
    """Search in a FAISS file. ConfigError where it is damaged or of other vectors."""

    def __init__(self, path: Path, count: int, dimension: int) -> None:
        import faiss

        try:
            self._index: Any = faiss.read_index(str(path))
        except RuntimeError as error:
            raise ConfigError(f"index {path}: is no FAISS index: build it again") from error
        if (self._index.ntotal, self._index.d) != (count, dimension):
            raise ConfigError(
                f"index {path}: holds {self._index.ntotal} vectors of {self._index.d}, not {count} of {dimension}: "
                "build it again"
            )

    @classmethod
    def over(cls, index: Any) -> AnnSearch:
        """Search in a faiss index that is in memory."""
        made = cls.__new__(cls)
        made._index = index
        return made

    def top(self, vector: Any, count: int) -> tuple[Any, Any]:
        """(rows, inner products) of about the `count` nearest, the nearest first."""
        if hasattr(self._index, "hnsw"):
            self._index.hnsw.efSearch = max(_SEARCH_EFFORT, count)
        elif hasattr(self._index, "nprobe"):
            self._index.nprobe = max(1, round(self._index.nlist * _PROBED_SHARE))
        scores, rows = self._index.search(np.asarray(vector, dtype=np.float32)[None], min(count, self._index.ntotal))
        found = rows[0] >= 0
        return rows[0][found], scores[0][found]
