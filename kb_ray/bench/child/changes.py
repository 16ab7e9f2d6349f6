"""Changes of inputs between calls that cost next to nothing: a few slices of an input change places.

What a task may promise of its inputs stays so. All values stay, each within its column: slices are taken across the
longest axis, where they are samples, edges or rows of features, so that no index leaves its range and no matrix becomes
singular. Numbers in order stay in order (offsets, lengths, boundaries, causal masks), and symmetric matrices symmetric
and as definite as before. Does not know which calls are whose.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch

FEWEST = 32
"""Elements; smaller inputs stay."""
WIDTH = 16
"""Elements of a slice, where one place of the longest axis has fewer and there are enough places."""
_CHOICES = 64
"""Pairs of slices, or places, of which each change draws one."""
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element: every dtype is moved as numbers that are moved everywhere."""
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Unsigned numbers have no comparison on a GPU; of two that are not huge the signed ones compare alike."""
_WITHOUT_ARITHMETIC = {torch.complex32, *(getattr(torch, name) for name in dir(torch) if name.startswith("float8"))}
_NEARLY = 1e-3
"""Of the largest element: what a product of a matrix and its transpose may lack to be symmetric."""
_ROWS = 8
_AT_ONCE = 1 << 24
_draw = random.Random()
"""Of its own: candidates may seed the one that everybody shares."""
_select, _put, _copy = torch.index_select, torch.Tensor.index_copy_, torch.Tensor.copy_


class Change(Protocol):
    """Of one input, another each time."""

    def make(self, lasting: bool) -> None:
        """Another one than before, which is put back first unless that was `lasting`: all is filled anew there."""

    def put_back(self) -> None:
        """Undo the last one, unless it was lasting."""


class _Exchange:
    """Slices across some axes change places. Done twice it is undone."""

    def __init__(self, tensor: torch.Tensor, axes: Sequence[int], pairs: torch.Tensor) -> None:
        # Each row of `pairs` has the places of two slices, one half of it for each.
        self._words, self._axes = _words(tensor), axes
        there = pairs.to(tensor.device)
        self._to, self._from = there.unbind(), there.roll(there.shape[1] // 2, 1).unbind()
        self._choice, self._made = -1, False

    def make(self, lasting: bool) -> None:
        self.put_back()
        self._choice = _another(len(self._to), self._choice)
        self._exchange(self._choice)
        self._made = not lasting

    def put_back(self) -> None:
        if self._made:
            self._exchange(self._choice)
            self._made = False

    def _exchange(self, choice: int) -> None:
        for axis in self._axes:
            _put(self._words, axis, self._to[choice], _select(self._words, axis, self._from[choice]))


class _Step:
    """In what is in order along an axis, one place takes the values of the next."""

    def __init__(self, tensor: torch.Tensor, axis: int, places: Sequence[int]) -> None:
        self._tensor, self._axis, self._places = _words(tensor), axis, places
        self._was: tuple[torch.Tensor, torch.Tensor] | None = None
        self._choice = -1

    def make(self, lasting: bool) -> None:
        self.put_back()
        self._choice = _another(len(self._places), self._choice)
        at = self._places[self._choice]
        part, following = self._tensor.narrow(self._axis, at, 1), self._tensor.narrow(self._axis, at + 1, 1)
        self._was = None if lasting else (part, part.clone())
        _copy(part, following)

    def put_back(self) -> None:
        if self._was is not None:
            _copy(*self._was)
            self._was = None


def _another(count: int, before: int) -> int:
    """One of so many, and not the one before where there are several."""
    drawn = _draw.randrange(count)
    return (drawn + 1) % count if drawn == before else drawn


def changes_of(inputs: Sequence[torch.Tensor]) -> list[Change]:
    """Of floats, or where none can be changed, of integers and bools: these mean positions, labels and masks beside
    the floats that they are about."""
    for inexact in (True, False):
        kind = [tensor for tensor in inputs if _is_inexact(tensor) == inexact]
        if found := [change for tensor in kind for change in _change_of(tensor)]:
            return found
    return []


def _change_of(tensor: torch.Tensor) -> Iterator[Change]:
    if tensor.numel() < FEWEST or not _is_apart(tensor):
        return
    longest = max(range(tensor.dim()), key=lambda axis: tensor.shape[axis])
    for axis in _ordered_axes(tensor):
        if places := _steps(tensor, axis):
            yield _Step(tensor, axis, places)
            return
    last = (tensor.dim() - 2, tensor.dim() - 1)
    axes = last if longest in last and _is_symmetric(tensor) else (longest,)
    if not _is_inexact(tensor) and not _is_one_kind(tensor, longest):
        return
    if pairs := _pairs(tensor, axes):
        yield _Exchange(tensor, axes, torch.tensor(pairs))


def _pairs(tensor: torch.Tensor, axes: Sequence[int]) -> list[list[int]]:
    """Places of two slices each that are not alike; empty where most are."""
    words, axis, size = _words(tensor), axes[0], tensor.shape[axes[0]]
    width = 1 if len(axes) > 1 else max(1, min(WIDTH * size // tensor.numel(), size // 4))
    count = max(_ROWS, min(_CHOICES, _AT_ONCE // (width * (tensor.numel() // size))))
    drawn = {tuple(sorted(_draw.sample(range(size // width), 2))) for _ in range(count)}
    pairs = [[place * width + i for place in pair for i in range(width)] for pair in drawn]
    if len(axes) > 1:
        return [pair for pair in pairs if _differ(words, axes, pair)]
    firsts, seconds = (torch.tensor([pair[half] for pair in pairs], device=words.device) for half in _halves(width))
    unlike = _select(words, axis, firsts.flatten()) != _select(words, axis, seconds.flatten())
    told = unlike.movedim(axis, 0).reshape(len(pairs), -1).any(1).tolist()
    return [pair for pair, differs in zip(pairs, told, strict=True) if differs]


def _halves(width: int) -> tuple[slice, slice]:
    return slice(0, width), slice(width, 2 * width)


def _differ(words: torch.Tensor, axes: Sequence[int], pair: Sequence[int]) -> bool:
    """Whether a symmetric matrix is another one when two of its rows, and of its columns, have changed places."""
    rows, columns = axes
    order = list(range(words.shape[columns]))
    order[pair[0]], order[pair[1]] = pair[1], pair[0]
    two = _select(words, rows, torch.tensor(pair, device=words.device))
    return not torch.equal(_select(two, columns, torch.tensor(order, device=words.device)).flip(rows), two)


def _steps(tensor: torch.Tensor, axis: int) -> list[int]:
    """Some places along an axis at which something else follows. Not the ends: offsets begin with 0 and end with how
    many there are."""
    plain, count = _comparable(tensor), tensor.shape[axis] - 2
    differ = plain.narrow(axis, 1, count) != plain.narrow(axis, 2, count)
    found = [1 + place for place in differ.movedim(axis, 0).reshape(count, -1).any(1).nonzero().flatten().tolist()]
    return _draw.sample(found, min(len(found), _CHOICES))


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, with the same axes, and one more of whole numbers for the widest dtype."""
    word = _WORDS.get(tensor.element_size())
    return tensor.view(word) if word is not None else torch.view_as_real(tensor).view(torch.int64)


def _is_apart(tensor: torch.Tensor) -> bool:
    """Whether each element has memory of its own."""
    behind = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= behind:
                return False
            behind += (size - 1) * stride
    return True


def _is_inexact(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _is_one_kind(tensor: torch.Tensor, longest: int) -> bool:
    """Whether integers across the longest axis mean the same: there are many more of them than of anything else, or
    all go about as far. Features of a few samples are not: each has a range of its own."""
    others = [axis for axis in range(tensor.dim()) if axis != longest]
    if all(2 * tensor.shape[axis] <= tensor.shape[longest] for axis in others):
        return True
    tops = _comparable(tensor).to(torch.int64).amax(others)
    return bool(2 * tops.min() >= tops.max())


def _is_square(tensor: torch.Tensor) -> bool:
    return bool(tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 1)


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether a matrix, or each of several, is its own adjoint; as near to it as its arithmetic lets it be."""
    if not _is_square(tensor) or tensor.dtype in _WITHOUT_ARITHMETIC:
        return False
    # A few rows tell it: a whole comparison takes twice the memory of an input that may be gigabytes.
    some = _draw.sample(range(tensor.shape[-1]), min(_ROWS, tensor.shape[-1]))
    rows, columns = _comparable(tensor)[..., some, :], _comparable(tensor)[..., some]
    if not _is_inexact(tensor):
        return bool(torch.equal(rows, columns.mT))
    return bool((rows - columns.mH).abs().amax() <= _NEARLY * rows.abs().amax())


def _ordered_axes(tensor: torch.Tensor) -> Iterator[int]:
    """Along which numbers, or False and True, nowhere fall or nowhere rise: three of them or more.

    None for square matrices of floats: those with two equal rows are singular.
    """
    if tensor.is_complex() or tensor.dtype in _WITHOUT_ARITHMETIC or (_is_inexact(tensor) and _is_square(tensor)):
        return
    plain = _comparable(tensor)
    for axis, size in enumerate(plain.shape):
        line = plain[tuple(slice(None) if other == axis else 0 for other in range(plain.dim()))]
        # One line tells nearly always that there is no order.
        if size > 2 and _is_monotone(line, 0) and _is_monotone(plain, axis):
            yield axis


def _is_monotone(plain: torch.Tensor, axis: int) -> bool:
    """In pieces: what is compared may be gigabytes."""
    size = plain.shape[axis]
    at_once = max(1, _AT_ONCE * size // plain.numel())
    before, after = plain.narrow(axis, 0, size - 1), plain.narrow(axis, 1, size - 1)
    pieces = list(zip(before.split(at_once, axis), after.split(at_once, axis), strict=True))
    return all(bool((a <= b).all()) for a, b in pieces) or all(bool((a >= b).all()) for a, b in pieces)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_SIGNED.get(tensor.dtype, tensor.dtype))
