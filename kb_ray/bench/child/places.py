"""Where wrong elements lie in a tensor, in words: the tail, every k-th element, every k-th row, one column.

Judged by a sample of flat indices. A wrong element may equal the right one by chance (a zero after ReLU), so that part
of a regular set is enough to see it. Knows no values and no tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

_PART = 0.4
"""Share of a regular set that must be wrong."""
_FEWEST = 3


def where_wrong(sample: torch.Tensor, wrong: int, last: int, shape: tuple[int, ...]) -> str | None:
    """The regularity, if one was seen.

    `sample`: flat row-major indices (int64) of the first wrong elements, ascending, at least one. `wrong`: how many
    there are. `last`: the last one.
    """
    total, first = math.prod(shape), int(sample[0])
    if wrong == total:
        return "all elements" if total > 1 else None
    tail = total - first
    if first >= total // 16 > 0 and last >= total - max(tail // 8, 1) and wrong >= tail * _PART:
        return f"only the tail from flat index {first}"
    whole = sample.numel() == wrong
    return _stepped(sample, 1.0) or next(_along(sample, shape, whole), None) or _stepped(sample, _PART)


def _stepped(sample: torch.Tensor, part: float) -> str | None:
    """Every k-th element; with a smaller `part` some of them may be right."""
    step = math.gcd(*sample.diff().tolist())
    regular = step > 1 and sample.numel() >= _FEWEST and sample.numel() >= part * ((_span(sample) - 1) // step + 1)
    return f"every {step}-th element from flat index {int(sample[0])}" if regular else None


def _along(sample: torch.Tensor, shape: tuple[int, ...], whole: bool) -> Iterator[str]:
    """Regularities of the index along one of several dimensions; `whole`: the sample has all wrong elements."""
    if sample.numel() < _FEWEST or sum(size > 1 for size in shape) < 2:
        return
    for axis, at in enumerate(torch.unravel_index(sample, shape)):
        seen, size = at.unique(), shape[axis]
        start, end = int(seen[0]), int(seen[-1])
        if size <= 2 or sample.numel() < _PART * _span(sample) * seen.numel() / size:
            continue
        step = math.gcd(*seen.diff().tolist())
        if whole and start == end:
            yield f"only {_name(axis, shape)} {start}"
        elif seen.numel() >= _FEWEST and end - start == step * (seen.numel() - 1) and step > 1:
            yield f"every {step}-th {_name(axis, shape)} from {start}"
        elif whole and start and end == size - 1 and step == 1 and seen.numel() == size - start:
            yield f"only the tail from {_name(axis, shape)} {start}"


def _span(sample: torch.Tensor) -> int:
    return int(sample[-1]) - int(sample[0]) + 1


def _name(axis: int, shape: tuple[int, ...]) -> str:
    return ("row", "column")[axis] if len(shape) == 2 else f"index of dimension {axis}"
