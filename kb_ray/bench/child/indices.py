"""Whether an integer output that differs from the reference's names other, equally good elements. Pure.

argmax, topk, argsort and their like answer with positions, and where elements tie there are several right
answers. A differing output passes only where
- the expected positions demonstrably select: along some axis of a source (an input, a weight, another output)
  they are its extremes in sorted order, or they give the very values of another output, and positions drawn
  blindly would do so with a chance below `CHANCE`: labels, counts and masks do not;
- the positions at hand exist, repeat nowhere where the expected ones do not, and select equal values (from an
  output: values as near as that output itself must be);
or, where the source is nowhere to be seen (topk of an intermediate), where they stand beside sorted values and
only change places among equal ones. Does not know operators or tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from kb_ray.bench.child.tolerance import EXACT, Tolerance, is_inexact, wide

CHANCE = 1e-3
MAX_ELEMENTS, MAX_POSITIONS = 1 << 28, 1 << 26
"""Of a source, and of an output: larger ones are not searched, and positions must be the expected ones."""
_SAMPLE = 64
_SORTABLE = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
     torch.uint8}
)  # fmt: skip


class Source(NamedTuple):
    """What positions may point into, and how near two of its values count as equal (EXACT for inputs)."""

    values: torch.Tensor
    allowed: Tolerance = EXACT


def select_alike(
    expected: torch.Tensor, got: torch.Tensor, inputs: Sequence[torch.Tensor], outputs: Sequence[Source] = ()
) -> bool:
    """Whether the positions `got` are as good as `expected` (same shape and integer dtype); False where unknown.

    `inputs`: what the outputs were computed from. `outputs`: the other outputs of the reference.
    """
    if not 0 < expected.numel() <= MAX_POSITIONS:
        return False
    # A copy: the owner of `got` may write while positions are checked and then used.
    want, have = expected.long(), got.to(expected.device, torch.int64, copy=True)
    beside = [source for source in outputs if _searched(source.values)]
    for source in [Source(tensor) for tensor in inputs if _searched(tensor)] + beside:
        for values, axis in _readings(source.values.to(expected.device), want.shape):
            a, b = (_with_axis(index, values, axis) for index in (want, have))
            if _equal_choice(values, axis, a, b, source.allowed) and _selects(values, axis, a, beside):
                return True
    return any(_changes_places(want, have, source) for source in beside)


def _searched(source: torch.Tensor) -> bool:
    return source.dtype in _SORTABLE and 0 < source.numel() <= MAX_ELEMENTS


def _readings(source: torch.Tensor, shape: torch.Size) -> Iterator[tuple[torch.Tensor, int]]:
    """(source, as it is or with its last axes joined, axis) such that positions of `shape` may lie along the axis."""
    for joined in range(source.dim()):
        values = source.flatten(source.dim() - 1 - joined) if joined else source
        for axis in range(values.dim() - 1 if joined else 0, values.dim()):
            without = values.shape[:axis] + values.shape[axis + 1 :]
            along = values.dim() == len(shape) and without == shape[:axis] + shape[axis + 1 :]
            if shape == without or (along and 0 < shape[axis] <= values.shape[axis]):
                yield values, axis


def _with_axis(index: torch.Tensor, values: torch.Tensor, axis: int) -> torch.Tensor:
    return index if index.dim() == values.dim() else index.unsqueeze(axis)


def _equal_choice(values: torch.Tensor, axis: int, want: torch.Tensor, have: torch.Tensor, allowed: Tolerance) -> bool:
    """Whether both select equal values, exist, and repeat alike."""
    size = values.shape[axis]
    for index in (want, have):
        if bool(((index < 0) | (index >= size)).any()):
            return False
    if _repeats(have, axis) and not _repeats(want, axis):
        return False
    return _near(values.gather(axis, want), values.gather(axis, have), allowed)


def _repeats(index: torch.Tensor, axis: int) -> bool:
    return bool((index.sort(dim=axis).values.diff(dim=axis) == 0).any())


def _near(a: torch.Tensor, b: torch.Tensor, allowed: Tolerance) -> bool:
    """Elementwise equal, NaN to itself, or within twice what is allowed: each side may be off by once."""
    if allowed == EXACT or not is_inexact(a):
        return bool(((a == b) | ((a != a) & (b != b))).all())
    a, b = wide(a), wide(b)
    close = (a - b).abs() <= 2 * (allowed.atol + allowed.rtol * a.abs())
    return bool(((close & a.isfinite()) | (a == b) | (a.isnan() & b.isnan())).all())


def _selects(values: torch.Tensor, axis: int, index: torch.Tensor, beside: Sequence[Source]) -> bool:
    """Whether `index` says where the extremes of `values` are, or what other outputs hold, and not by chance."""
    if _repeats(index, axis):
        return False
    chosen = values.gather(axis, index)
    for largest in (True, False):
        extremes = values.topk(index.shape[axis], dim=axis, largest=largest).values
        if _near(chosen, extremes, EXACT) and _log_chance(values, axis, extremes) < math.log(CHANCE):
            return True
    return any(_gives(values, axis, index, chosen, source.values) for source in beside)


def _log_chance(values: torch.Tensor, axis: int, extremes: torch.Tensor) -> float:
    """Logarithm of the chance that distinct positions drawn blindly select `extremes` in this order.

    Of equal elements any will do: they count as ways to be right. Only the last group of equal ones can go on
    beyond what was selected.
    """
    n, k = values.shape[axis], extremes.shape[axis]
    chosen = extremes.movedim(axis, -1)
    last = extremes.narrow(axis, k - 1, 1)
    ties = ((values == last) | ((values != values) & (last != last))).sum(axis, keepdim=True).movedim(axis, -1)
    place = torch.arange(k, device=values.device).expand(chosen.shape)
    starts = torch.ones_like(chosen, dtype=torch.bool)
    starts[..., 1:] = (chosen[..., 1:] != chosen[..., :-1]) & ~(chosen[..., 1:].isnan() & chosen[..., :-1].isnan())
    first = torch.where(starts, place, 0).cummax(-1).values
    ends = torch.full_like(place, k)
    ends[..., :-1] = torch.where(starts[..., 1:], place[..., 1:], k)
    ends = ends.flip(-1).cummin(-1).values.flip(-1)
    in_last = first == first[..., -1:]
    ways = torch.where(in_last, ties - (place - first), ends - place)
    return float(ways.double().log().sum()) - float((n - place).double().log().sum()) + math.log(2)


def _gives(values: torch.Tensor, axis: int, index: torch.Tensor, chosen: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether another output holds just what `index` selects (median, kthvalue, mode), and not by chance."""
    if output.dtype != values.dtype or output.numel() != chosen.numel():
        return False
    if not _near(chosen.reshape(-1), output.to(chosen.device).reshape(-1), EXACT):
        return False
    rows = values.movedim(axis, -1).reshape(-1, values.shape[axis])
    picked = chosen.movedim(axis, -1).reshape(rows.shape[0], -1)[:, 0]
    some = torch.linspace(0, len(rows) - 1, min(_SAMPLE, len(rows)), device=values.device).long()
    alike = (rows[some] == picked[some, None]).sum(-1).clamp(min=1)
    return float((alike.double() / rows.shape[1]).log().sum()) < math.log(CHANCE)


def _changes_places(want: torch.Tensor, have: torch.Tensor, beside: Source) -> bool:
    """Whether positions differ only in their order among equal values of an output sorted along an axis."""
    values = beside.values.to(want.device)
    if values.shape != want.shape or not is_inexact(values):
        return False
    for axis in range(values.dim()):
        row = wide(values).movedim(axis, -1)
        for falling in (row, -row):
            steps = falling[..., :-1] - falling[..., 1:]
            if steps.numel() and bool((steps >= 0).all()) and _log_chance_sorted(row) < math.log(CHANCE):
                room = 2 * (beside.allowed.atol + beside.allowed.rtol * falling[..., :-1].abs())
                group = torch.zeros_like(row, dtype=torch.int64)
                group[..., 1:] = (steps > room).cumsum(-1)
                if _same_sets(want.movedim(axis, -1), have.movedim(axis, -1), group):
                    return True
    return False


def _log_chance_sorted(row: torch.Tensor) -> float:
    """Logarithm of the chance that values in blind order are sorted along the last axis."""
    return _log_chance(row, row.dim() - 1, row)


def _same_sets(want: torch.Tensor, have: torch.Tensor, group: torch.Tensor) -> bool:
    """Whether each group (numbers that rise along the last axis) holds the same positions on both sides."""

    def ordered(index: torch.Tensor) -> torch.Tensor:
        by_value = index.argsort(stable=True, dim=-1)
        order = by_value.gather(-1, group.gather(-1, by_value).argsort(stable=True, dim=-1))
        return index.gather(-1, order)

    return bool((ordered(want) == ordered(have)).all())
