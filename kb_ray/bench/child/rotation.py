"""Inputs of timed calls: several sets of values that take turns in one piece of memory.

So that neither an address nor what was computed for an earlier call says anything about the next one: every
call finds other values, also among those that are not looked at afterwards. Does no timing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.strides import duplicate, fill
from kb_ray.bench.child.tree import flatten, unflatten

CHANGED = 16
"""Elements of an input that are changed for one call, where its output is not looked at."""


class Held(Protocol):
    """One set of values with the tree they belong in."""

    tree: wire.Tree
    tensors: list[torch.Tensor]


class Rotation:
    """`values[i % len(values)]` is what call i is given, after `prepare(i, ...)`.

    A single set that nothing changes is used where it is: it may be gigabytes, of which no cache holds a part.
    """

    def __init__(self, sets: Sequence[Held], mutated: bool) -> None:
        self._sets = sets
        self._moving = mutated or len(sets) > 1
        alike = all(_kinds(held.tensors) == _kinds(sets[0].tensors) for held in sets)
        self._work = [held.tensors for held in sets]
        if self._moving:
            copies = [[duplicate(t) for t in held.tensors] for held in (sets[:1] if alike else sets)]
            self._work = copies * len(sets) if alike else copies
        self.values = [unflatten(held.tree, work) for held, work in zip(sets, self._work, strict=True)]
        self._places = [self._somewhere(work) for work in self._work]

    def _somewhere(self, work: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Elements that may be changed: some of each float tensor, as (flat tensor, positions)."""
        if len(self._sets) == 1:
            return []
        inexact = [t for t in work if t.is_floating_point() and t.is_contiguous() and t.numel() > CHANGED]
        return [(t.view(-1), torch.randint(t.numel(), (CHANGED,), device=t.device)) for t in inexact]

    def prepare(self, call: int, looked_at: bool) -> None:
        """Put the values of a call in place; `looked_at`: exactly those, since its output is compared."""
        if not self._moving:
            return
        index = call % len(self._sets)
        for target, source in zip(self._work[index], self._sets[index].tensors, strict=True):
            fill(target, source)
        for flat, positions in () if looked_at else self._places[index]:
            flat.index_fill_(0, positions, random.random())

    def keep(self, value: Any) -> tuple[wire.Tree, list[torch.Tensor]]:
        """An output as tree and tensors, safe from the next call's inputs if it is made of these."""
        tree, tensors = flatten(value, canonical=True)
        reused = {_address(t) for work in self._work for t in work} if self._moving else set()
        return tree, [t.clone() if _address(t) in reused else t for t in tensors]


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _kinds(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [(t.dtype, t.shape, t.stride()) for t in tensors]
