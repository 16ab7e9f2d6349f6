"""How far a floating-point output may lie from the reference's, and which elements lie further.

|got - expected| <= atol + rtol * |expected|, with both worked out per output from
- its dtype: `BASE`, a few roundings (float32: 1e-4, some 800 of them; narrower dtypes: 2 to 4), and where TF32
  is allowed and there are products, `TF32_BASE` for float32: cutting off bits, as `tl.dot` does, shifts a sum of
  products of one sign by up to 2^-9 of it, while cuBLAS rounds to nearest and its errors cancel;
- its scale, the mean magnitude of its nonzero elements, which a few huge ones move less than an RMS, so that
  zeros do not pass for a softmax whose elements are all 1e-6;
- the number of terms summed per element: 2 eps sqrt(reduction), for another order of summation (eps of
  float32 for narrower dtypes too, whose sums are kept in float32);
- the reference's own error against a float64 run of itself, times `REFERENCE_ERROR_FACTOR`: whoever is as
  exact as the reference passes, also where TF32 or 16-bit intermediates make the reference coarse.
atol is never over `CAP` times the scale. Integers and bools are exact. NaN and infinities must stand where
the reference's stand, with their sign. Does not know tasks, processes or what an output means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

BASE: dict[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 1.6e-2,
}
"""Per dtype: rtol, and atol per unit of scale. One-byte floats: one eps."""
TF32_BASE = 2.0**-9
"""The same for float32 where its products may be of TF32, whose eps is 2^-10, in both factors."""
CAP: dict[torch.dtype, float] = {
    torch.float64: 1e-6,
    torch.float32: 1e-2,
    torch.float16: 5e-2,
    torch.bfloat16: 5e-2,
}
"""Largest atol per unit of scale. One-byte floats: two eps."""
IMPRECISE: dict[torch.dtype, float] = {torch.float32: 3e-2}
"""Where not the cap: below this share of scale and element, a difference looks like rounding (of bfloat16 too)."""
REFERENCE_ERROR_FACTOR = 4.0
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_DOUBLE = (torch.float64, torch.complex128)
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_CHUNK = {"cpu": 1 << 20}
_CHUNK_ELSEWHERE, _LARGE = 1 << 22, 1 << 26
"""Elements: some pieces of the first size fit into the L2 cache of a GPU together; the other is for one passage."""


class Tolerance(NamedTuple):
    """|got - expected| <= atol + rtol * |expected|. Both 0: exact."""

    atol: float
    rtol: float


EXACT = Tolerance(0.0, 0.0)


def tolerance(
    expected: torch.Tensor, oracle: torch.Tensor | None = None, reduction: int = 1, tf32: bool = False
) -> Tolerance:
    """What is allowed around `expected`, see above; EXACT for integers and bools.

    `oracle`: the same output of the same program run in float64, where there is one; ignored if its shape
    differs. `reduction`: terms summed per element, where known. `tf32`: whether it may come from products of TF32.
    """
    if not is_inexact(expected):
        return EXACT
    base, cap, floor = _constants(expected.dtype)
    if tf32 and _REAL.get(expected.dtype, expected.dtype) == torch.float32:
        base = TF32_BASE
    eps = torch.finfo(torch.float64 if expected.dtype in _DOUBLE else torch.float32).eps
    scale = mean_magnitude(expected)
    error = 0.0 if oracle is None or oracle.shape != expected.shape else _largest_error(expected, oracle)
    atol = (base + 2 * eps * max(reduction, 1) ** 0.5) * scale + REFERENCE_ERROR_FACTOR * error
    return Tolerance(max(min(atol, cap * scale), floor), base)


def tolerances(
    outputs: Sequence[torch.Tensor],
    oracle: Sequence[torch.Tensor] | None = None,
    inputs: Sequence[torch.Tensor] = (),
    tf32: bool = False,
) -> list[Tolerance]:
    """What is allowed around each of `outputs`, in their order.

    `oracle`: the same outputs in float64; left out where it is another number of tensors, or one of another
    shape. `inputs`: what the outputs were computed from, weights among them. `tf32`: by products of TF32, perhaps.
    """
    exact = list(oracle) if oracle is not None and len(oracle) == len(outputs) else [None] * len(outputs)
    pairs = zip(outputs, exact, strict=True)
    return [tolerance(want, near, reduction_size(inputs, want), tf32) for want, near in pairs]


def reduction_size(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> int:
    """A guess at the terms summed per element of `output`: the longest axis of any of `inputs` (weights among
    them), or what the largest holds per output element, whichever is more; at least 1."""
    sizes = [max(tensor.shape, default=1) for tensor in inputs]
    sizes += [tensor.numel() // max(output.numel(), 1) for tensor in inputs]
    return max(sizes, default=1) or 1


def imprecise(expected: torch.Tensor) -> Tolerance:
    """What lies within this, but outside the real tolerance, is imprecise rather than wrong."""
    if not is_inexact(expected):
        return EXACT
    _, cap, floor = _constants(expected.dtype)
    share = IMPRECISE.get(_REAL.get(expected.dtype, expected.dtype), cap)
    return Tolerance(max(share * mean_magnitude(expected), floor), share)


def mean_magnitude(values: torch.Tensor) -> float:
    """Mean of |x| over finite elements other than 0; 0 where there is none."""
    total = torch.zeros((), dtype=torch.float64, device=values.device)
    count = torch.zeros((), dtype=torch.int64, device=values.device)
    for (part,) in chunks(values, pieces=_LARGE):
        size = torch.nan_to_num((part.float() if _is_narrow(part) else wide(part)).abs(), 0.0, 0.0)
        total += size.sum(dtype=torch.float64)
        count += torch.count_nonzero(size)
    return float(total) / max(int(count), 1)


def plainly_close(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance) -> bool:
    """Whether all elements are finite and allowed with a little to spare. False means: look closer.

    In float32 and with no more passes than that takes: gigabytes are compared so. Stops at the first piece
    that is not.
    """
    if not (_is_narrow(expected) and _is_narrow(got)) or not allowed.atol:
        return False
    fine = torch.ones((), dtype=torch.bool, device=expected.device)
    atol = torch.full((), (1 - 1e-5) * allowed.atol, dtype=torch.float32, device=expected.device)
    for i, (want, have) in enumerate(chunks(expected, got)):
        want, have = want.float(), have.float()
        bound = torch.add(atol, want.abs(), alpha=(1 - 1e-5) * allowed.rtol)
        # Strictly less: with infinities and NaN the comparison is False.
        fine &= torch.lt((have - want).abs_(), bound).all()
        if i == 0 and not fine:
            return False
    return bool(fine)


def _is_narrow(values: torch.Tensor) -> bool:
    return values.dtype in (torch.float32, torch.float16, torch.bfloat16)


def wrong_elements(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance) -> torch.Tensor:
    """Bool mask, shape as given: elements of `got` that are not allowed. Same shape and dtype are required."""
    if not is_inexact(expected):
        return _bits(expected) != _bits(got)
    want, have = wide(expected), wide(got)
    # Said so that NaN fails: a comparison with it is False, and an infinite bound is taken for no element.
    close = (have - want).abs() <= allowed.atol + allowed.rtol * want.abs()
    return ~((close & torch.isfinite(want)) | (have == want) | (torch.isnan(have) & torch.isnan(want)))


def chunks(*tensors: torch.Tensor, pieces: int = _CHUNK_ELSEWHERE) -> Iterator[tuple[torch.Tensor, ...]]:
    """Flat pieces of tensors of one size, in row-major order, all on the first one's device.

    `pieces`: their elements on a GPU.
    """
    flat = [tensor.detach().contiguous().view(-1) for tensor in tensors]
    device = flat[0].device
    step = _CHUNK.get(device.type, pieces)
    for start in range(0, flat[0].numel(), step):
        yield tuple([part[start : start + step].to(device) for part in flat])


def wide(values: torch.Tensor) -> torch.Tensor:
    """The values as float64 or complex128, in which no difference of two outputs rounds or overflows."""
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def is_inexact(values: torch.Tensor) -> bool:
    """Whether the dtype is floating-point or complex."""
    return bool(values.is_floating_point() or values.is_complex())


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.view(_SIGNED[values.dtype]) if values.dtype in _SIGNED else values


def _constants(dtype: torch.dtype) -> tuple[float, float, float]:
    """(base, cap, smallest atol) of a floating-point or complex dtype."""
    real = _REAL.get(dtype, dtype)
    info = torch.finfo(real)
    # Nobody has to hit a step between subnormals; float32 and bfloat16 kernels may flush them to zero.
    step = float(info.tiny) if real in (torch.float32, torch.bfloat16) else 2 * float(info.tiny * info.eps)
    eps = float(info.eps)
    return BASE.get(real, eps), CAP.get(real, 2 * eps), step


def _largest_error(expected: torch.Tensor, oracle: torch.Tensor) -> float:
    largest = torch.zeros((), dtype=torch.float64, device=expected.device)
    for want, exact in chunks(expected, oracle):
        error = (wide(want) - exact.to(wide(want).dtype)).abs()
        largest = torch.maximum(largest, torch.where(torch.isfinite(error), error, 0.0).amax())
    return float(largest)
