"""Exact search: the inner product of one vector with all of them, a block at a time. numpy only.

Vectors may be mapped from files: a block is what is in memory at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_BLOCK_ROWS = 16_384


def inner_products(parts: Sequence[Any], vector: Any) -> Any:
    """[n] float32: the product of `vector` [dimension] with each row of the parts [rows, dimension], in order."""
    wanted = np.ascontiguousarray(vector, dtype=np.float32)
    scores: Any = np.empty(sum(len(part) for part in parts), dtype=np.float32)
    start = 0
    for part in parts:
        for first in range(0, len(part), _BLOCK_ROWS):
            block = part[first : first + _BLOCK_ROWS]
            np.dot(block, wanted, out=scores[start : start + len(block)])
            start += len(block)
    return scores


def top(scores: Any, count: int) -> tuple[Any, Any]:
    """(rows, scores) of the `count` highest of scores [n], the highest first; equal ones in their order.

    What is minus infinity is never among them.
    """
    count = min(count, len(scores))
    if count == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    chosen = np.concatenate([above, equal[: count - len(above)]])
    chosen = chosen[np.lexsort((chosen, -scores[chosen]))]
    chosen = chosen[np.isfinite(scores[chosen])]
    return chosen, scores[chosen]
