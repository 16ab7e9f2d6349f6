"""Changes of inputs between calls that cost next to nothing: a few elements take the values of others.

What a task may promise of its inputs stays so: numbers in order stay in order (offsets, lengths, causal masks), and
symmetric matrices symmetric and as definite as before. Does not know which calls are whose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch

from kb_ray.bench.child.strides import extent, strides_of

CHANGED = 16
"""Elements in a row that get the values of as many others; inputs of fewer than twice as many stay."""
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Unsigned numbers have no comparison on a GPU; of two that are not huge the signed ones compare alike."""
_WITHOUT_ARITHMETIC = {torch.complex32, *(getattr(torch, name) for name in dir(torch) if name.startswith("float8"))}
_NEARLY = 1e-3
"""Of the largest element: what a product of a matrix and its transpose may lack to be symmetric."""
_PLACES, _ROWS = 1024, 8
Step = tuple[torch.Tensor, Callable[[], torch.Tensor]]
"""A part of an input, and what it is to hold once the steps before are done."""


class Change:
    """Of one input, another each time."""

    def __init__(self, draw: Callable[[], list[Step]]) -> None:
        self._draw = draw
        self._was: list[tuple[torch.Tensor, torch.Tensor]] = []

    def make(self, lasting: bool) -> None:
        """Another one than before, which is put back first unless that was `lasting`: all is filled anew there."""
        self.put_back()
        for part, values in self._draw():
            if not lasting:
                self._was.append((part, part.clone()))
            part.copy_(values())

    def put_back(self) -> None:
        while self._was:
            part, values = self._was.pop()
            part.copy_(values)


def changes_of(inputs: Sequence[torch.Tensor]) -> list[Change]:
    """Of floats, or where none can be changed, of integers and bools: these mean positions, labels and masks beside
    the floats that they are about."""
    for inexact in (True, False):
        kind = [tensor for tensor in inputs if _is_inexact(tensor) == inexact]
        if found := [change for tensor in kind for change in _change_of(tensor)]:
            return found
    return []


def _change_of(tensor: torch.Tensor) -> Iterator[Change]:
    flat = _flat(tensor)
    if flat is None or flat.numel() < 2 * CHANGED:
        return
    if (axis := _ordered_axis(tensor)) is not None:
        if places := _steps(tensor, axis):
            yield Change(lambda: _as_the_next(tensor, axis, random.choice(places)))
    elif _is_symmetric(tensor):
        yield Change(lambda: _two_of_both_axes(tensor))
    else:
        yield Change(lambda: _as_others(flat))


def _as_others(flat: torch.Tensor) -> list[Step]:
    at, other = random.sample(range(flat.numel() // CHANGED), 2)
    return [(_run(flat, at), lambda: _run(flat, other))]


def _run(flat: torch.Tensor, number: int) -> torch.Tensor:
    return flat[number * CHANGED : (number + 1) * CHANGED]


def _as_the_next(tensor: torch.Tensor, axis: int, at: int) -> list[Step]:
    return [(tensor.narrow(axis, at, 1), lambda: tensor.narrow(axis, at + 1, 1))]


def _steps(tensor: torch.Tensor, axis: int) -> list[int]:
    """Some places along an axis at which something else follows. Not the ends: offsets begin with 0 and end with how
    many there are."""
    plain, count = _comparable(tensor), tensor.shape[axis] - 2
    if count < 1:
        return []
    differ = plain.narrow(axis, 1, count) != plain.narrow(axis, 2, count)
    found = differ.movedim(axis, 0).reshape(count, -1).any(1).nonzero().flatten()
    chosen = found[torch.randint(len(found), (_PLACES,), device=found.device)] if len(found) > _PLACES else found
    return [1 + place for place in chosen.tolist()]


def _two_of_both_axes(tensor: torch.Tensor) -> list[Step]:
    """Two rows change places, and the columns of the same numbers."""
    first, second = sorted(random.sample(range(tensor.shape[-1]), 2))
    both = slice(first, second + 1, second - first)
    rows, columns = tensor[..., both, :], tensor[..., both]
    return [(rows, lambda: rows.flip(-2)), (columns, lambda: columns.flip(-1))]


def _flat(tensor: torch.Tensor) -> torch.Tensor | None:
    """All elements in a row, as they lie; None where there are gaps between them, or some are shared."""
    count = tensor.numel()
    if not count or extent(tuple(tensor.shape), strides_of(tensor)) != count or 0 in tensor.stride():
        return None
    return tensor.as_strided((count,), (1,))


def _is_inexact(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether a matrix, or each of several, is its own adjoint; as near to it as its arithmetic lets it be."""
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 1
    if not square or tensor.dtype in _WITHOUT_ARITHMETIC:
        return False
    # A few rows tell it: a whole comparison takes twice the memory of an input that may be gigabytes.
    some = random.sample(range(tensor.shape[-1]), min(_ROWS, tensor.shape[-1]))
    rows, columns = _comparable(tensor)[..., some, :], _comparable(tensor)[..., some]
    if not _is_inexact(tensor):
        return bool(torch.equal(rows, columns.mT))
    return bool((rows - columns.mH).abs().amax() <= _NEARLY * rows.abs().amax())


def _ordered_axis(tensor: torch.Tensor) -> int | None:
    """Along which numbers, or False and True, nowhere fall or nowhere rise; None for floats."""
    if _is_inexact(tensor):
        return None
    plain = _comparable(tensor)
    for axis, size in enumerate(plain.shape):
        if size > 1:
            before, after = plain.narrow(axis, 0, size - 1), plain.narrow(axis, 1, size - 1)
            if bool((before <= after).all()) or bool((before >= after).all()):
                return axis
    return None


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_SIGNED.get(tensor.dtype, tensor.dtype))
