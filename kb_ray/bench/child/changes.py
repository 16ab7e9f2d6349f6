"""Changes of inputs between calls that cost next to nothing: a few slices of an input change places.

What a task may promise of its inputs stays so. All values stay, each within its column: slices are taken across the
longest axis, where they are samples, edges or rows of features, so that no index leaves its range and no matrix becomes
singular. Numbers in order stay in order (offsets, lengths, boundaries, causal masks), and symmetric matrices symmetric
and as definite as before. Of integers alone, which may be about each other, at most one input changes. Does not know
which calls are whose.
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
_PAIRS, _TRIED, _FEWEST_PAIRS = 256, 64, 3
"""Pairs of slices that are drawn; those of which it is looked whether they differ; what there must be of these."""
_PLACES = 1024
"""Places of a step that are drawn."""
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element: every dtype is moved as numbers that are moved everywhere."""
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Unsigned numbers have no comparison on a GPU; of two that are not huge the signed ones compare alike."""
_WITHOUT_ARITHMETIC = {torch.complex32, *(getattr(torch, name) for name in dir(torch) if name.startswith("float8"))}
_NEARLY = 1e-3
"""Of the largest element: what a product of a matrix and its transpose may lack to be symmetric."""
_ROWS = 8
"""Of a symmetric matrix that are looked at, and pairs of them; pairs at least, however large slices are."""
_AT_ONCE = 1 << 24
_draw = random.SystemRandom()
"""Candidates may seed any other, and processes that were forked share it."""
_select, _put, _copy = torch.index_select, torch.Tensor.index_copy_, torch.Tensor.copy_


class Change(Protocol):
    """Of one input, another each time."""

    def make(self) -> None:
        """Another one in place of the one before."""

    def go_on(self) -> None:
        """Another one on top of those before, where that is cheaper: what was there comes only with `filled`."""

    def put_back(self) -> None:
        """Undo what `make` made."""

    def filled(self) -> None:
        """The whole input was written anew: there is nothing to undo."""


class _Exchange:
    """Slices across some axes change places. Done twice it is undone."""

    def __init__(self, tensor: torch.Tensor, axes: Sequence[int], pairs: torch.Tensor, unlike: Sequence[int]) -> None:
        # Each row of `pairs` has the places of two slices, one half of it for each; `unlike`: rows that matter.
        self._words, self._axes, self._unlike = _words(tensor), axes, unlike
        self._to, self._from = pairs, pairs.roll(pairs.shape[1] // 2, 1)
        self._last = -1
        self._made: list[int] = []

    def make(self) -> None:
        self.put_back()
        # One that certainly matters, and a second, so that hardly two calls ever find the same.
        self._last = _another(len(self._unlike), self._last)
        first = self._unlike[self._last]
        self._made = [first, _another(len(self._to), first)]
        for choice in self._made:
            self._exchange(choice)

    def go_on(self) -> None:
        self._last = _another(len(self._unlike), self._last)
        self._exchange(self._unlike[self._last])

    def put_back(self) -> None:
        for choice in reversed(self._made):
            self._exchange(choice)
        self._made = []

    def filled(self) -> None:
        self._made = []

    def _exchange(self, choice: int) -> None:
        for axis in self._axes:
            _put(self._words, axis, self._to[choice], _select(self._words, axis, self._from[choice]))


class _Step:
    """In what is in order along an axis, one place takes the values of the next."""

    def __init__(self, tensor: torch.Tensor, axis: int, places: Sequence[int]) -> None:
        self._tensor, self._axis, self._places = _words(tensor), axis, places
        self._was: tuple[torch.Tensor, torch.Tensor] | None = None
        self._last = -1

    def make(self) -> None:
        self.put_back()
        self._last = _another(len(self._places), self._last)
        at = self._places[self._last]
        part, following = self._tensor.narrow(self._axis, at, 1), self._tensor.narrow(self._axis, at + 1, 1)
        self._was = part, part.clone()
        _copy(part, following)

    def go_on(self) -> None:
        # A place that has taken the next one's values has no other to take.
        self.make()

    def put_back(self) -> None:
        if self._was is not None:
            _copy(*self._was)
            self._was = None

    def filled(self) -> None:
        self._was = None


def _another(count: int, before: int) -> int:
    """One of so many, and not the one before where there are several."""
    drawn = _draw.randrange(count)
    return (drawn + 1) % count if drawn == before else drawn


def changes_of(inputs: Sequence[torch.Tensor]) -> list[Change]:
    """Of floats, or where none can be changed, of integers and bools: these mean positions, labels and masks beside
    the floats that they are about."""
    floats = [tensor for tensor in inputs if _is_inexact(tensor)]
    if found := [change for tensor in floats for change in _change_of(tensor)]:
        return found
    return list(_change_of_integers([tensor for tensor in inputs if not _is_inexact(tensor)]))


def _change_of_integers(inputs: Sequence[torch.Tensor]) -> Iterator[Change]:
    """Lengths go with the tokens that they count, starts with lengths: of several only the largest changes, if it is
    the only one of its size and none that counts others."""
    some = sorted((tensor for tensor in inputs if tensor.numel() >= FEWEST), key=lambda tensor: -tensor.numel())
    if len(some) > 1 and (some[0].numel() == some[1].numel() or next(_ordered_axes(some[0]), None) is not None):
        return
    for tensor in some[:1]:
        yield from _change_of(tensor)


def _change_of(tensor: torch.Tensor) -> Iterator[Change]:
    if tensor.numel() < FEWEST or not _is_apart(tensor):
        return
    for axis in sorted(_ordered_axes(tensor), key=lambda axis: -tensor.shape[axis]):
        if places := _steps(tensor, axis):
            yield _Step(tensor, axis, places)
            return
    longest = max(range(tensor.dim()), key=lambda axis: tensor.shape[axis])
    last = (tensor.dim() - 2, tensor.dim() - 1)
    axes = last if longest in last and _is_symmetric(tensor) else (longest,)
    if not _is_inexact(tensor) and not _is_one_kind(tensor, longest):
        return
    pairs = _pairs(tensor, axes)
    unlike = _unlike(_words(tensor), axes, pairs)
    if len(unlike) >= _FEWEST_PAIRS:
        yield _Exchange(tensor, axes, pairs, unlike)


def _pairs(tensor: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """Places of two slices each, a pair a row."""
    size = tensor.shape[axes[0]]
    width = 1 if len(axes) > 1 else max(1, min(WIDTH * size // tensor.numel(), size // 4))
    drawn = list({tuple(sorted(_draw.sample(range(size // width), 2))) for _ in range(_PAIRS)})
    begins = torch.tensor(drawn, device=tensor.device)
    return (begins[:, :, None] * width + torch.arange(width, device=tensor.device)).flatten(1)


def _unlike(words: torch.Tensor, axes: Sequence[int], pairs: torch.Tensor) -> list[int]:
    """Rows of pairs, as far as it was looked, whose exchange makes something else."""
    if len(axes) > 1:
        return [row for row, pair in enumerate(pairs[:_ROWS].tolist()) if _differ(words, axes, pair)]
    axis, width = axes[0], pairs.shape[1] // 2
    tried = max(_ROWS, min(_TRIED, _AT_ONCE // (width * (words.numel() // words.shape[axis]))))
    firsts, seconds = (half.flatten() for half in pairs[:tried].split(width, 1))
    differs = _select(words, axis, firsts) != _select(words, axis, seconds)
    told = differs.movedim(axis, 0).reshape(min(tried, len(pairs)), -1).any(1)
    return [row for row, unlike in enumerate(told.tolist()) if unlike]


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
    found = differ.movedim(axis, 0).reshape(count, -1).any(1).nonzero().flatten()
    if len(found) > _PLACES:
        found = found[torch.tensor(_draw.sample(range(len(found)), _PLACES), device=found.device)]
    return [1 + place for place in found.tolist()]


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
    tops = _comparable(tensor).amax(others).to(torch.int64)
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
