"""How two tensors of one shape and dtype differ: where first, by how much, and with which regularity.

Description only: what is allowed comes from `tolerance`, what follows from a difference is not known here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kb_ray.bench.child.places import where_wrong
from kb_ray.bench.child.tolerance import Tolerance, chunks, imprecise, is_inexact, wide, wrong_elements

PRECISION = "precision"
"""What the pattern of a difference begins with that rounding explains: TF32, 16-bit intermediates."""
_SAMPLE = 1 << 16
_TRANSPOSE_UP_TO = 1 << 24
_DIGITS = {torch.float64: 17, torch.float32: 9, torch.complex128: 17, torch.complex64: 9}


@dataclass(frozen=True)
class Mismatch:
    """Figures of a difference. Errors are the largest over elements finite on both sides, None if there is none."""

    wrong: int
    total: int
    first: int
    """Flat row-major index of the first wrong element."""
    last: int
    expected: str
    got: str
    nonfinite: bool
    """Whether a wrong element of `got` is NaN or infinite."""
    max_abs_error: float | None
    max_rel_error: float | None
    pattern: str | None
    others: tuple[tuple[int, str, str], ...] = ()
    """Flat index, expected and got of the next two wrong elements and of the last one."""


def place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Index in a tensor of `shape` of the element with this flat row-major index."""
    index = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        index.append(at)
    return tuple(reversed(index))


def count_wrong(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance) -> int:
    """Elements that are not allowed. On a GPU it waits once, at the end."""
    counts = [wrong_elements(want, have, allowed).sum() for want, have in chunks(expected, got)]
    return int(torch.stack(counts).sum()) if counts else 0


def describe(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance) -> Mismatch:
    """The figures; at least one element must be wrong."""
    found = _Found()
    for want, have in chunks(expected, got):
        found.look_at(want, have, wrong_elements(want, have, allowed))
    # Memory that its owner can still write may have been put right since it was counted.
    first = max(found.first, 0)
    return Mismatch(
        wrong=found.wrong,
        total=expected.numel(),
        first=first,
        last=found.last,
        expected=_shown(expected, first),
        got=_shown(got, first),
        nonfinite=found.nonfinite,
        max_abs_error=found.max_abs,
        max_rel_error=found.max_rel,
        pattern=_pattern(expected, got, allowed, found),
        others=tuple((i, _shown(expected, i), _shown(got, i)) for i in found.others()),
    )


class _Found:
    """What one pass over the chunks has gathered."""

    def __init__(self) -> None:
        self.wrong, self.first, self.last, self.seen = 0, -1, -1, 0
        self.nonfinite, self.any_nonzero = False, False
        self.max_abs: float | None = None
        self.max_rel: float | None = None
        self.where: list[torch.Tensor] = []
        self.want: list[torch.Tensor] = []
        self.have: list[torch.Tensor] = []
        self.sampled = 0

    def look_at(self, want: torch.Tensor, have: torch.Tensor, mask: torch.Tensor) -> None:
        start, self.seen = self.seen, self.seen + mask.numel()
        exact, want, have = not is_inexact(want), wide(want), wide(have)
        self.any_nonzero = self.any_nonzero or bool((have != 0).any())
        where = mask.nonzero().view(-1)
        if not where.numel():
            return
        self.wrong += where.numel()
        self.first = self.first if self.first >= 0 else start + int(where[0])
        self.last = start + int(where[-1])
        self.nonfinite = self.nonfinite or (not exact and not bool(torch.isfinite(have[where]).all()))
        self._errors(want[where], have[where])
        part = where[: _SAMPLE - self.sampled]
        self.sampled += part.numel()
        self.where.append((part + start).cpu())
        self.want.append(want[part].cpu())
        self.have.append(have[part].cpu())

    def others(self) -> list[int]:
        """Flat indices of a few wrong elements beside the first."""
        where = torch.cat(self.where)[1:3].tolist() if self.where else []
        return where + ([self.last] if self.last > max([self.first, *where]) else [])

    def _errors(self, want: torch.Tensor, have: torch.Tensor) -> None:
        error, size = (have - want).abs(), want.abs()
        finite = torch.isfinite(error)
        if bool(finite.any()):
            self.max_abs = max(self.max_abs or 0.0, float(error[finite].amax()))
        relative = (error / size)[finite & (size > 0)]
        if relative.numel():
            self.max_rel = max(self.max_rel or 0.0, float(relative.amax()))


def _shown(values: torch.Tensor, index: int) -> str:
    element = values.detach().contiguous().view(-1)[index]
    if not is_inexact(element):
        return str(element.item())
    digits = _DIGITS.get(element.dtype, 5)
    return f"{wide(element).item():.{digits}g}"


def _pattern(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance, found: _Found) -> str | None:
    """How the wrong elements are wrong and where they lie, as far as a regularity was seen."""
    if not found.wrong:
        return None
    where = where_wrong(torch.cat(found.where), found.wrong, found.last, tuple(expected.shape))
    how = _how(expected, got, allowed, found)
    said = [how, where] if how and how.startswith(PRECISION) else [where, how]
    return ", ".join(part for part in said if part) or None


def _how(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance, found: _Found) -> str | None:
    want, have = torch.cat(found.want), torch.cat(found.have)
    if not found.any_nonzero:
        return "all zeros"
    if is_inexact(expected) and not found.nonfinite and not count_wrong(expected, got, imprecise(expected)):
        return f"{PRECISION}: each error is small"
    if _is_transposed(expected, got, allowed):
        return "transposed"
    return _constant(want, have, allowed)


def _constant(want: torch.Tensor, have: torch.Tensor, allowed: Tolerance) -> str | None:
    usable = torch.isfinite(want.abs()) & torch.isfinite(have.abs())
    if want.is_complex() or want.numel() < 3 or not bool(usable.all()):
        return None
    room = allowed.atol + allowed.rtol * torch.maximum(want.abs(), have.abs())
    largest = int(want.abs().argmax())
    factor = float(have[largest] / want[largest]) if float(want[largest]) else 0.0
    if factor and bool(((have - factor * want).abs() <= room * max(1.0, abs(factor))).all()):
        return f"constant factor {factor:.4g}"
    offset = float((have - want).median())
    if bool(((have - want - offset).abs() <= room).all()):
        return f"constant offset {offset:.4g}"
    return None


def _is_transposed(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance) -> bool:
    shape = expected.shape
    if len(shape) < 2 or min(shape[-2:]) < 2 or math.prod(shape) > _TRANSPOSE_UP_TO:
        return False
    # Also for unequal sides: the right elements, written in the other order into the right shape.
    turned = expected.transpose(-1, -2).contiguous().view(shape)
    return not count_wrong(turned, got, allowed)
