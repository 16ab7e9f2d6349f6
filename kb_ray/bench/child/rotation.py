"""Inputs of timed calls: several sets of values that take turns in one piece of memory.

So that neither an address nor what was computed for an earlier call says anything about the next one: hardly two calls
find the same values; where outputs are looked at afterwards, those of the set itself. Does no timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.changes import Change, changes_by
from kb_ray.bench.child.plans import Plan
from kb_ray.bench.child.strides import duplicate, fill
from kb_ray.bench.child.tree import unflatten


class Held(Protocol):
    """One set of values with the tree they belong in, and how these may be changed."""

    tree: wire.Tree
    tensors: list[torch.Tensor]
    plans: list[Plan]


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
        changes: dict[int, list[Change]] = {}
        for held, work in zip(sets, self._work, strict=True):
            if id(work) not in changes:
                changes[id(work)] = changes_by(held.plans, work)
        self._changes = [changes[id(work)] for work in self._work]

    def prepare(self, call: int, looked_at: bool) -> None:
        """Put the values of a call in place; `looked_at`: exactly those, since its output is compared."""
        index = call % len(self._sets)
        if self._moving:
            for target, source in zip(self._work[index], self._sets[index].tensors, strict=True):
                fill(target, source)
            for change in self._changes[index]:
                change.filled()
        if not looked_at:
            again(self._changes[index])
        elif not self._moving:
            for change in self._changes[index]:
                change.put_back()

    def vary(self, call: int, looked_at: bool) -> None:
        """As `prepare`, at the cost of a few elements: a call that is not looked at finds what lies there, changed.

        Inputs that calls change themselves are put back each time.
        """
        if looked_at or self._mutated:
            self.prepare(call, looked_at)
            return
        changes = self._changes[call % len(self._sets)]
        on_top(changes) if self._moving else again(changes)


Vary = Callable[[Sequence[Change]], None]
"""How a call's inputs become others than those before."""


def anew(changes: Sequence[Change]) -> None:
    """What was just filled with a set's values."""
    for change in changes:
        change.filled()
        change.make()


def again(changes: Sequence[Change]) -> None:
    """A set where it is, with which the next call begins again."""
    for change in changes:
        change.make()


def on_top(changes: Sequence[Change]) -> None:
    """What lies there, until it is filled."""
    for change in changes:
        change.go_on()


def _kinds(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [(t.dtype, t.shape, t.stride()) for t in tensors]
