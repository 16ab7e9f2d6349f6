"""Input sets: several families of values over what a task draws, and the drawing itself for bare shapes.

Works on the trusted side, on tensors only. Does not know the candidate, calls no `get_inputs` and does not
judge: a family on which the reference itself fails or turns non-finite is the judge's to leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from kb_ray.bench.child.strides import distinct, duplicate, with_values
from kb_ray.bench.child.tree import DTYPES
from kb_ray.errors import TaskError
from kb_ray.records import TensorSpec

MANY_ZEROS = 0.25
"""Share of elements from which on zeros are taken for a promise of the task."""
INT_RANGE = (0, 10)
"""Integer inputs made from bare shapes lie in [0, 10): valid as indices, labels and small counts."""


class Variant(NamedTuple):
    """One input set of a verdict."""

    name: str
    """Unique within a verdict, e.g. `scaled`, `new_seed_2`."""
    family: str
    """What `transform` is asked for."""
    needs_new_draw: bool
    """True: the task draws again under another seed first. False: the first draw is what is transformed."""


_ORDER = ("as_drawn", "nearly_equal", "spiked", "sign_flipped", "shifted", "new_seed", "scaled")
_ON_FIRST_DRAW = frozenset({"as_drawn", "nearly_equal", "scaled", "sign_flipped", "shifted"})
NEW_SEED = Variant("new_seed", "new_seed", True)
SCALED = Variant("scaled", "scaled", False)
AT_OLD_ADDRESS = 3
"""Index of the input set whose values are put into the memory of the set two before it."""


def instead_of(variant: Variant) -> Iterator[Variant]:
    """What takes the place of a family that the reference does not accept, in order."""
    if variant.family == "sign_flipped":
        yield SCALED
    if variant.family != NEW_SEED.family:
        yield NEW_SEED


def variants(n: int) -> list[Variant]:
    """The first `n` (at least 1) input sets, in order; the first is as drawn.

    Past the listed families the order begins again at its second, each set then over a draw of its own.
    """
    families = [_ORDER[i if i < len(_ORDER) else 1 + (i - 1) % (len(_ORDER) - 1)] for i in range(n)]
    made: list[Variant] = []
    for i, family in enumerate(families):
        times = families[:i].count(family)
        new_draw = i >= len(_ORDER) or family not in _ON_FIRST_DRAW
        made.append(Variant(family if times == 0 else f"{family}_{times + 1}", family, new_draw))
    return made


def transform(tensors: Sequence[torch.Tensor], variant: Variant, seed: int) -> list[torch.Tensor]:
    """New tensors with the values of the variant's family over those of `tensors`: same shapes and dtypes.

    Only floating-point and complex tensors change; integers and bools mean positions, labels and masks and
    are copied. Where a family picks elements, `seed` decides which. Families: `as_drawn` and `new_seed`
    (copies), `scaled` (x 2), `sign_flipped` (x -2), `shifted` (+ 3 RMS: variance by difference of squares
    fails here), `spiked` (1 in 4096 elements, at 10 times the largest, the last at 20), `nearly_equal` (1 in
    256 elements moved by an RMS, the rest untouched). Strides stay, also those of expanded tensors, and so
    does what a task may promise: zeros where there are many (triangular, sparse), and symmetry.
    """
    change = _FAMILIES[variant.family]
    generator = torch.Generator().manual_seed(seed)

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if change is _copy or not _is_inexact(tensor) or not tensor.numel():
            return duplicate(tensor)
        # What is shared by expansion is one element, changed once.
        own = distinct(tensor)
        return with_values(tensor, _in_structure(own, _in_its_dtype(change, own, generator)))

    return [changed(tensor) for tensor in tensors]


def draw_from_shapes(
    specs: Mapping[str, TensorSpec], seed: int, device: str | torch.device = "cpu"
) -> dict[str, torch.Tensor]:
    """Inputs of a task that gives shapes only, by name, in order; the same for the same seed and device.

    Floats and complex numbers are standard normal, integers uniform in `INT_RANGE`, bools fair coins.
    TaskError: a dtype that does not exist here, or a negative size.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    return {name: _draw(name, spec, generator) for name, spec in specs.items()}


def _is_inexact(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _in_its_dtype(
    change: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
    tensor: torch.Tensor,
    generator: torch.Generator,
) -> torch.Tensor:
    # One-byte floats and complex halves have little arithmetic of their own.
    working = tensor.float() if tensor.dtype.itemsize == 1 else tensor
    working = working.to(torch.complex64) if tensor.dtype is torch.complex32 else working
    return change(working.detach(), generator).to(tensor.dtype)


def _in_structure(tensor: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """`changed` with the zeros of `tensor`, where they are many, and symmetric where it is."""
    if tensor.dtype.itemsize == 1:
        return changed
    zeros = tensor == 0
    if MANY_ZEROS * tensor.numel() < int(torch.count_nonzero(zeros)) < tensor.numel():
        changed = changed.masked_fill(zeros, 0)
    if tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 1 and torch.equal(tensor, tensor.mT):
        changed = changed.triu() + changed.triu(1).mT
    return changed


def _rms(tensor: torch.Tensor) -> float:
    """Root of the mean square, without overflow in 16 bits; 1 for zeros and for what is not finite."""
    narrow = tensor.dtype in (torch.float16, torch.bfloat16)
    size = float(torch.linalg.vector_norm(tensor, dtype=torch.float32 if narrow else None))
    rms = size / max(tensor.numel(), 1) ** 0.5
    return rms if 0 < rms < float("inf") else 1.0


def _shifted(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor + 3 * _rms(tensor)


def _spiked(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    largest = float(tensor.abs().amax())
    height = 10 * (largest if 0 < largest < float("inf") else 1.0)
    where = torch.cat([_positions(tensor, 4096, generator), torch.tensor([tensor.numel() - 1])])
    signs = torch.randint(0, 2, where.shape, generator=generator) * 2 - 1
    signs[-1] = 2  # the one maximum, so that whoever leaves out the end has another
    return _put(tensor, where, height * signs)


def _nearly_equal(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    where = _positions(tensor, 256, generator)
    values = tensor.reshape(-1)[where.to(tensor.device)]
    return _put(tensor, where, values + _rms(tensor))


def _positions(tensor: torch.Tensor, one_in: int, generator: torch.Generator) -> torch.Tensor:
    count = min(max(1, tensor.numel() // one_in), 4096)
    return torch.randint(0, tensor.numel(), (count,), generator=generator)


def _put(tensor: torch.Tensor, where: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[where.to(tensor.device)] = values.to(device=tensor.device, dtype=tensor.dtype)
    return changed if tensor.is_contiguous() else torch.empty_like(tensor).copy_(changed)


def _copy(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor.clone()


_FAMILIES: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "as_drawn": _copy,
    "new_seed": _copy,
    "scaled": lambda tensor, generator: tensor * 2,
    "sign_flipped": lambda tensor, generator: tensor * -2,
    "shifted": _shifted,
    "spiked": _spiked,
    "nearly_equal": _nearly_equal,
}


def _draw(name: str, spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    dtype, device = DTYPES.get(spec.dtype.removeprefix("torch.")), generator.device
    if dtype is None or min(spec.shape, default=0) < 0:
        wrong = f"dtype {spec.dtype!r}" if dtype is None else f"shape {spec.shape}"
        raise TaskError(f"input {name!r} has {wrong}: give sizes >= 0 and a dtype out of {', '.join(DTYPES)}")
    if dtype.is_floating_point or dtype.is_complex:
        # Narrow dtypes cannot be drawn in; wide ones must not be rounded through float32.
        drawn_in = dtype if dtype in (torch.float64, torch.complex128, torch.complex64) else torch.float32
        drawn_in = torch.complex64 if dtype is torch.complex32 else drawn_in
        return torch.randn(spec.shape, dtype=drawn_in, device=device, generator=generator).to(dtype)
    ends = (0, 2) if dtype is torch.bool else INT_RANGE
    return torch.randint(*ends, spec.shape, device=device, generator=generator).to(dtype)
