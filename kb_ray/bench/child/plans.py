"""Which changes of inputs between calls a task allows: drawn by the judge, from values that only it need look at.

What a task may promise of its inputs stays so. All values stay, each within its column: slices are taken across the
longest axis, where they are samples, edges or rows of features, so that no index leaves its range and no matrix becomes
singular. Numbers in order stay in order (offsets, lengths, boundaries, causal masks), and symmetric matrices symmetric
and as definite as before. Of integers alone, which may be about each other, at most one input changes. `changes` makes
them, in whatever process has the inputs; which calls are whose neither knows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

FEWEST = 32
"""Elements; smaller inputs stay."""
WIDTH = 16
"""Elements of a slice, where one place of the longest axis has fewer and there are enough places."""
_PAIRS, _TRIED, _FEWEST_PAIRS = 256, 64, 3
"""Pairs of slices that are drawn; those of which it is looked whether they differ; what there must be of these."""
_INPUTS = 64
"""Inputs that change at most, the largest: lists of hundreds would take longer to change than to compute with."""
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


@dataclass(frozen=True)
class Exchange:
    """Two slices of `width` places across each of `axes` of an input change places."""

    input: int
    axes: tuple[int, ...]
    width: int
    pairs: tuple[tuple[int, int], ...]
    """Numbers of two slices each, counted in widths."""
    unlike: tuple[int, ...]
    """Those of the pairs that are known to make something else."""


@dataclass(frozen=True)
class Step:
    """One of `places` along an axis of an input takes the values of the next."""

    input: int
    axis: int
    places: tuple[int, ...]


Plan = Exchange | Step
_Numbered = tuple[int, torch.Tensor]
"""An input with its number."""


def told(plans: Sequence[Plan]) -> list[Any]:
    """Plans as value trees, which `heard` reads."""
    return [asdict(plan) for plan in plans]


def heard(plans: Any) -> list[Plan]:
    """Plans from value trees that `told` wrote."""
    return [(Step if "places" in plan else Exchange)(**plan) for plan in plans]


def plans_of(inputs: Sequence[torch.Tensor]) -> list[Plan]:
    """Of floats, or where none can be changed, of integers and bools: these mean positions, labels and masks beside
    the floats that they are about."""
    draw = random.Random()
    floats = [(number, tensor) for number, tensor in enumerate(inputs) if _is_inexact(tensor)]
    floats = sorted(floats, key=lambda given: -given[1].numel())[:_INPUTS]
    if found := [plan for number, tensor in floats if (plan := _plan_of(number, tensor, draw)) is not None]:
        return found
    exact = [(number, tensor) for number, tensor in enumerate(inputs) if not _is_inexact(tensor)]
    return [plan for plan in (_plan_of(number, tensor, draw) for number, tensor in _largest(exact)) if plan is not None]


def _largest(inputs: Sequence[_Numbered]) -> list[_Numbered]:
    """Lengths go with the tokens that they count, starts with lengths: of several integers only the largest changes, if
    it is the only one of its size and none that counts others."""
    some = sorted(((n, t) for n, t in inputs if t.numel() >= FEWEST), key=lambda given: -given[1].numel())
    if len(some) > 1:
        (_, first), (_, second) = some[:2]
        if first.numel() == second.numel() or next(_ordered_axes(first), None) is not None:
            return []
    return some[:1]


def _plan_of(number: int, tensor: torch.Tensor, draw: random.Random) -> Plan | None:
    if tensor.numel() < FEWEST or not _is_apart(tensor):
        return None
    for axis in sorted(_ordered_axes(tensor), key=lambda axis: -tensor.shape[axis]):
        if places := _steps(tensor, axis, draw):
            return Step(number, axis, tuple(places))
    longest = max(range(tensor.dim()), key=lambda axis: tensor.shape[axis])
    last = (tensor.dim() - 2, tensor.dim() - 1)
    axes = last if longest in last and _is_symmetric(tensor, draw) else (longest,)
    if not _is_inexact(tensor) and not _is_one_kind(tensor, longest):
        return None
    size = tensor.shape[axes[0]]
    width = 1 if len(axes) > 1 else max(1, min(WIDTH * size // tensor.numel(), size // 4))
    drawn = list({(min(two), max(two)) for two in (draw.sample(range(size // width), 2) for _ in range(_PAIRS))})
    unlike = _unlike(words(tensor), axes, width, drawn)
    return Exchange(number, axes, width, tuple(drawn), tuple(unlike)) if len(unlike) >= _FEWEST_PAIRS else None


def _unlike(memory: torch.Tensor, axes: Sequence[int], width: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Numbers of pairs, as far as it was looked, whose exchange makes something else."""
    if len(axes) > 1:
        return [number for number, pair in enumerate(pairs[:_ROWS]) if _differ(memory, axes, pair)]
    axis = axes[0]
    tried = max(_ROWS, min(_TRIED, _AT_ONCE // (width * (memory.numel() // memory.shape[axis]))))
    begins = torch.tensor(pairs[:tried]) * width
    firsts, seconds = ((half[:, None] + torch.arange(width)).flatten().to(memory.device) for half in begins.unbind(1))
    differs = torch.index_select(memory, axis, firsts) != torch.index_select(memory, axis, seconds)
    said = differs.movedim(axis, 0).reshape(min(tried, len(pairs)), -1).any(1)
    return [number for number, unlike in enumerate(said.tolist()) if unlike]


def _differ(memory: torch.Tensor, axes: Sequence[int], pair: tuple[int, int]) -> bool:
    """Whether a symmetric matrix is another one when two of its rows, and of its columns, have changed places."""
    rows, columns = axes
    order = list(range(memory.shape[columns]))
    order[pair[0]], order[pair[1]] = pair[1], pair[0]
    two = torch.index_select(memory, rows, torch.tensor(pair, device=memory.device))
    return not torch.equal(torch.index_select(two, columns, torch.tensor(order, device=memory.device)).flip(rows), two)


def _steps(tensor: torch.Tensor, axis: int, draw: random.Random) -> list[int]:
    """Some places along an axis at which something else follows. Not the ends: offsets begin with 0 and end with how
    many there are."""
    plain, count = _comparable(tensor), tensor.shape[axis] - 2
    differ = plain.narrow(axis, 1, count) != plain.narrow(axis, 2, count)
    found = differ.movedim(axis, 0).reshape(count, -1).any(1).nonzero().flatten()
    if len(found) > _PLACES:
        found = found[torch.tensor(draw.sample(range(len(found)), _PLACES), device=found.device)]
    return [1 + place for place in found.tolist()]


def words(tensor: torch.Tensor) -> torch.Tensor:
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


def _is_symmetric(tensor: torch.Tensor, draw: random.Random) -> bool:
    """Whether a matrix, or each of several, is its own adjoint; as near to it as its arithmetic lets it be."""
    if not _is_square(tensor) or tensor.dtype in _WITHOUT_ARITHMETIC:
        return False
    # A few rows tell it: a whole comparison takes twice the memory of an input that may be gigabytes.
    some = draw.sample(range(tensor.shape[-1]), min(_ROWS, tensor.shape[-1]))
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
