"""Inputs of timed calls: several sets of values that take turns in one piece of memory.

So that neither an address nor what was computed for an earlier call says anything about the next one: every
call finds other values, and those whose outputs are looked at afterwards cannot be told from the others by them. Does
no timing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.strides import duplicate, fill
from kb_ray.bench.child.tree import unflatten

CHANGED = 16
"""Elements of an input that are changed for one call, where its output is not looked at."""

_FINITE = 0x70
"""Bytes below this are finite numbers in every float format of one byte."""


class Held(Protocol):
    """One set of values with the tree they belong in."""

    tree: wire.Tree
    tensors: list[torch.Tensor]


class _Spots(NamedTuple):
    """Elements of one tensor that may be changed, and what they are by right."""

    flat: torch.Tensor
    positions: torch.Tensor
    values: torch.Tensor

    def change(self) -> None:
        value = random.random() if self.flat.is_floating_point() else random.randrange(_FINITE)
        self.flat.index_fill_(0, self.positions, value)

    def put_back(self) -> None:
        self.flat.index_copy_(0, self.positions, self.values)


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
            if not looked_at:
                spots.change()
            elif not self._moving:
                spots.put_back()

    def vary(self, call: int, looked_at: bool) -> None:
        """As `prepare`, at the cost of a few elements: a call that is not looked at finds what lies there, changed.

        Inputs that calls change themselves are put back each time.
        """
        if looked_at or self._mutated:
            self.prepare(call, looked_at)
            return
        for spots in self._spots[call % len(self._sets)]:
            spots.change()


def _spots(work: Sequence[torch.Tensor]) -> list[_Spots]:
    """Some elements of each tensor of floats."""
    inexact = [t.view(-1) for t in work if t.is_floating_point() and t.is_contiguous() and t.numel() > CHANGED]
    # Of floats of one byte PyTorch changes no elements by their positions.
    inexact = [flat if flat.element_size() > 1 else flat.view(torch.uint8) for flat in inexact]
    drawn = [(flat, torch.randint(flat.numel(), (CHANGED,), device=flat.device)) for flat in inexact]
    return [_Spots(flat, positions, flat[positions]) for flat, positions in drawn]


def _kinds(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [(t.dtype, t.shape, t.stride()) for t in tensors]
