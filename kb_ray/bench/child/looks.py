"""Which timed and repeated calls of a candidate have their outputs compared, and the judge's memory that these go to.

The judge draws the calls, so that nobody can count to them. Each output goes into memory of the judge's, where nothing
right lies before, and is copied there within the block of calls. Draws and compares; does no timing.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.cases import Case, same_bytes, size_of
from kb_ray.bench.child.checking import wrong_with
from kb_ray.bench.child.children import Child
from kb_ray.records import ErrorDetail

SLOT = "looked"
LOOKED_BYTES = 1 << 28
"""Of all outputs that are looked at in one round of trials. Of larger ones, one is: floors say enough of those."""
REPEATED = 2
"""Runs of repeated calls in a round, for the judge's clock."""
_draw = random.SystemRandom()


class Looks:
    """The looks of one round of trials: at one call for each case in each of `blocks`, and one in each repeated run.

    As many as have room, drawn, where not all have. `begin` makes it ready for another round.
    """

    def __init__(self, child: Child, cases: list[Case], blocks: int, timeout_s: float) -> None:
        self._child, self._cases = child, cases
        largest = max(size_of(case.outputs) for case in cases)
        timed, room = blocks * len(cases), max(1, LOOKED_BYTES // max(1, largest))
        self._repeats = room >= timed + REPEATED
        wanted = timed + REPEATED if self._repeats else timed
        self._chosen = sorted(_draw.sample(range(wanted), min(wanted, room)))
        self._refs = [self._case_of(number).outputs for number in self._chosen]
        self._next = 0
        self._taken: list[int] = []
        self._trees: list[wire.Tree] = []
        with child.sharing():
            blank = self._blank()
        child.put(SLOT, None, blank, timeout_s)

    def begin(self) -> None:
        """Forget all looks so far."""
        self._next, self._taken, self._trees = 0, [], []
        with self._child.sharing():
            self._child.refill(SLOT, self._blank())

    def in_block(self, size: int) -> list[list[int]]:
        """Looks at calls of the next block of `size`: (call, first and end of what is its own in the memory)."""
        count = len(self._cases)
        drawn = [(at, _draw.choice(range(at, size, count))) for at in range(count) if at < size]
        self._next, first = self._next + count, self._next
        return [look for at, call in drawn for look in self._look(first + at, call)]

    def in_repeats(self, calls: int) -> list[list[int]]:
        """The look at one of so many repeated calls."""
        if not self._repeats:
            return []
        number = self._next
        self._next += 1
        may = range(number % len(self._cases), calls, len(self._cases))
        return self._look(number, _draw.choice(may)) if may else []

    def _look(self, number: int, call: int) -> list[list[int]]:
        if number not in self._chosen:
            return []
        self._taken.append(number)
        return [[call, *self._place(number)]]

    def told(self, trees: Any) -> None:
        """How the outputs are built that were asked for since this was called last, as the candidate's process says."""
        missing = len(self._taken) - len(self._trees)
        fits = isinstance(trees, list) and len(trees) == missing
        self._trees += trees if fits else [None] * missing

    def wrong(self) -> ErrorDetail | None:
        """What is wrong if an output that was looked at is not right; None if all are."""
        held, right = self._child.held(SLOT), dict[int, tuple[wire.Tree, list[torch.Tensor]]]()
        for number, tree in zip(self._taken, self._trees, strict=True):
            first, end = self._place(number)
            case, found = self._case_of(number), held[first:end]
            # The same bits need no second comparison, which costs many times as much.
            known = right.get(case.serial)
            if known is not None and known[0] == tree and all(map(same_bytes, known[1], found)):
                continue
            wrong = wrong_with(case, tree, found)
            if wrong is not None:
                message = "the outputs of timed calls are wrong, though those of checked calls were right"
                return wrong.model_copy(update={"message": message, "detail": wrong.message})
            right[case.serial] = tree, found
        return None

    def _case_of(self, number: int) -> Case:
        return self._cases[number % len(self._cases)]

    def _place(self, number: int) -> tuple[int, int]:
        at = self._chosen.index(number)
        first = sum(len(tensors) for tensors in self._refs[:at])
        return first, first + len(self._refs[at])

    def _blank(self) -> list[torch.Tensor]:
        return [unlike(tensor) for tensors in self._refs for tensor in tensors]


def unlike(like: torch.Tensor) -> torch.Tensor:
    """A new tensor of this dtype and shape that is no output: full of NaN, or of numbers or bits drawn at random."""
    if like.dtype is torch.bool:
        return torch.randint(2, like.shape, dtype=torch.uint8, device=like.device).view(torch.bool)
    count = like.numel() * like.element_size()
    inexact = like.is_floating_point() or like.is_complex()
    low = 0xFF if inexact else 0
    made = torch.randint(low, 0x100, (count,), dtype=torch.uint8, device=like.device)
    return made.view(like.dtype).reshape(like.shape)
