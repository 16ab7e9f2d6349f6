"""Inputs of timed calls: several sets of values that take turns in one piece of memory.

So that neither an address nor what was computed for an earlier call says anything about the next one: every call finds
other values; where outputs are looked at afterwards, those of the set itself. Does no timing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.strides import duplicate, fill
from kb_ray.bench.child.tree import unflatten

CHANGED = 16
"""Elements of an input in a row that others of it take the place of for one call, where its output is not looked at."""
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Unsigned numbers have no comparison on a GPU; of two that are not huge the signed ones compare alike."""


class Held(Protocol):
    """One set of values with the tree they belong in."""

    tree: wire.Tree
    tensors: list[torch.Tensor]


class Spots:
    """A few elements of one tensor, others for each call, with values that its other elements have."""

    def __init__(self, flat: torch.Tensor) -> None:
        self._flat = flat
        self._was: tuple[int, torch.Tensor] | None = None

    def change(self, lasting: bool) -> None:
        """Other elements than before, which are put back first unless that was `lasting`: all is filled anew there."""
        self.put_back()
        at, other = random.sample(range(self._flat.numel() // CHANGED), 2)
        if not lasting:
            self._was = at, self._run(at).clone()
        self._run(at).copy_(self._run(other))

    def put_back(self) -> None:
        if self._was is not None:
            at, values = self._was
            self._run(at).copy_(values)
            self._was = None

    def _run(self, number: int) -> torch.Tensor:
        return self._flat[number * CHANGED : (number + 1) * CHANGED]


class Rotation:
    """`values[i % len(values)]` is what call i is given, after `prepare(i, ...)`.

    A single set that nothing changes is used where it is, but for a few elements: it may be gigabytes, of which no
    cache holds a part.
    """

    def __init__(self, sets: Sequence[Held], mutated: bool) -> None:
        self._sets, self._mutated = sets, mutated
        self._moving = mutated or len(sets) > 1
        alike = all(_kinds(held.tensors) == _kinds(sets[0].tensors) for held in sets)
        self._work = [held.tensors for held in sets]
        if self._moving:
            copies = [[duplicate(t) for t in held.tensors] for held in (sets[:1] if alike else sets)]
            self._work = copies * len(sets) if alike else copies
        self.values = [unflatten(held.tree, work) for held, work in zip(sets, self._work, strict=True)]
        self._spots = [_spots(work) for work in self._work]

    def prepare(self, call: int, looked_at: bool) -> None:
        """Put the values of a call in place; `looked_at`: exactly those, since its output is compared."""
        index = call % len(self._sets)
        if self._moving:
            for target, source in zip(self._work[index], self._sets[index].tensors, strict=True):
                fill(target, source)
        for spots in self._spots[index]:
            if looked_at:
                spots.put_back()
            else:
                spots.change(lasting=self._moving)

    def vary(self, call: int, looked_at: bool) -> None:
        """As `prepare`, at the cost of a few elements: a call that is not looked at finds what lies there, changed.

        Inputs that calls change themselves are put back each time.
        """
        if looked_at or self._mutated:
            self.prepare(call, looked_at)
            return
        for spots in self._spots[call % len(self._sets)]:
            spots.change(lasting=self._moving)


def _spots(work: Sequence[torch.Tensor]) -> list[Spots]:
    return [Spots(tensor.view(-1)) for tensor in varied(work)]


def varied(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Those whose elements take each other's places: floats, or else integers and bools; none whose places mean
    something, so that what a task promises of its inputs (offsets, lengths, a matrix to be factored) still holds."""
    inexact = any(map(_is_inexact, inputs))
    large = [t for t in inputs if _is_inexact(t) == inexact and t.is_contiguous() and t.numel() >= 2 * CHANGED]
    return [t for t in large if not (_is_symmetric(t) if inexact else _is_ordered(t))]


def _is_inexact(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _is_symmetric(tensor: torch.Tensor) -> bool:
    # Floats of one byte have no comparison of their own.
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] and tensor.itemsize > 1
    return bool(square and torch.equal(tensor, tensor.mT))


def _is_ordered(tensor: torch.Tensor) -> bool:
    """Whether numbers, or False and True, nowhere fall or nowhere rise along an axis."""
    plain = tensor.view(_SIGNED.get(tensor.dtype, tensor.dtype))
    for axis, size in enumerate(plain.shape):
        before, after = plain.narrow(axis, 0, size - 1), plain.narrow(axis, 1, size - 1)
        if size > 1 and (bool((before <= after).all()) or bool((before >= after).all())):
            return True
    return False


def _kinds(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [(t.dtype, t.shape, t.stride()) for t in tensors]
