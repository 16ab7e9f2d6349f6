"""Changes of inputs between calls that cost next to nothing, as `plans` allow them: a few slices change places.

Runs in every process that is timed, of which each candidate's is a new one: what is needed of PyTorch is little, and
loaded before times are taken. Does not know what an input means, nor which calls are whose.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import torch

from kb_ray.bench.child.plans import Exchange, Plan, Step, words

_DRAWN, _FEWEST = 4096, 64
"""Exchanges that are drawn before the first, of all inputs and of one: one costs two launches then."""
_draw = random.SystemRandom()
"""Candidates may seed any other, and processes that were forked share it."""
_select, _put, _copy = torch.index_select, torch.Tensor.index_copy_, torch.Tensor.copy_
_integers = torch.randint


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


def changes_by(plans: Sequence[Plan], inputs: Sequence[torch.Tensor]) -> list[Change]:
    """What is planned for such inputs, made of these."""
    # Of many inputs each needs fewer: what a call finds is one of them all.
    drawn = max(_FEWEST, _DRAWN // max(1, len(plans)))
    return [
        _Exchange(inputs[plan.input], plan, drawn) if isinstance(plan, Exchange) else _Step(inputs[plan.input], plan)
        for plan in plans
    ]


class _Exchange:
    """Two pairs of slices across some axes change places at once. Done twice it is undone."""

    def __init__(self, tensor: torch.Tensor, plan: Exchange, count: int) -> None:
        self._words, self._axes, self._count = words(tensor), plan.axes, count
        # On the host, where nothing must be loaded for it.
        places = (_drawn(plan, count)[:, :, None] * plan.width + torch.arange(plan.width)).flatten(1)
        self._to, self._from = (p.to(tensor.device) for p in (places, places.roll(2 * plan.width, 1)))
        self._last = -1
        self._made = False

    def make(self) -> None:
        self.put_back()
        self.go_on()
        self._made = True

    def go_on(self) -> None:
        self._made = False
        self._last = _another(self._count, self._last)
        self._exchange()

    def put_back(self) -> None:
        if self._made:
            self._exchange()
            self._made = False

    def filled(self) -> None:
        self._made = False

    def _exchange(self) -> None:
        for axis in self._axes:
            _put(self._words, axis, self._to[self._last], _select(self._words, axis, self._from[self._last]))


def _drawn(plan: Exchange, count: int) -> torch.Tensor:
    """Numbers of slices, four in each of so many rows, the first two of which change places with the others.

    One pair of each row certainly matters, and a second, so that hardly two calls ever find the same.
    """
    draw, pairs = torch.Generator().manual_seed(_draw.getrandbits(63)), torch.tensor(plan.pairs)
    first = pairs[torch.tensor(plan.unlike)[_integers(len(plan.unlike), (count,), generator=draw)]]
    second = pairs[_integers(len(pairs), (count,), generator=draw)]
    meet = (first[:, :, None] == second[:, None, :]).flatten(1).any(1, keepdim=True)
    return torch.stack([first, torch.where(meet, first, second)], 2).flatten(1)


class _Step:
    """In what is in order along an axis, one place takes the values of the next."""

    def __init__(self, tensor: torch.Tensor, plan: Step) -> None:
        self._tensor, self._axis, self._places = words(tensor), plan.axis, plan.places
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
