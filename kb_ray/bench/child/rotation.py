"""Inputs of timed calls: several sets of values that take turns in one piece of memory.

So that neither an address nor what was computed for an earlier call says anything about the next one: every call finds
other values; where outputs are looked at afterwards, those of the set itself. Does no timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.changes import changes_of
from kb_ray.bench.child.strides import duplicate, fill
from kb_ray.bench.child.tree import unflatten


class Held(Protocol):
    """One set of values with the tree they belong in."""

    tree: wire.Tree
    tensors: list[torch.Tensor]


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
        changes = {id(work): changes_of(work) for work in self._work}
        self._changes = [changes[id(work)] for work in self._work]

    def prepare(self, call: int, looked_at: bool) -> None:
        """Put the values of a call in place; `looked_at`: exactly those, since its output is compared."""
        index = call % len(self._sets)
        if self._moving:
            for target, source in zip(self._work[index], self._sets[index].tensors, strict=True):
                fill(target, source)
        for change in self._changes[index]:
            if looked_at:
                change.put_back()
            else:
                change.make(lasting=self._moving)

    def vary(self, call: int, looked_at: bool) -> None:
        """As `prepare`, at the cost of a few elements: a call that is not looked at finds what lies there, changed.

        Inputs that calls change themselves are put back each time.
        """
        if looked_at or self._mutated:
            self.prepare(call, looked_at)
            return
        for change in self._changes[call % len(self._sets)]:
            change.make(lasting=self._moving)


def _kinds(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [(t.dtype, t.shape, t.stride()) for t in tensors]
