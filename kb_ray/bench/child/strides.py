"""Tensors in the layout they were given: strides read, kept in copies, and written through where elements are shared.

An axis of stride 0 (an expanded view) repeats one element, which is written once. Knows tensors only, neither
processes nor what a layout is good for. Strides count elements; None stands for those of a contiguous tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

Strides = tuple[int, ...] | None
_narrow, _copy, _stride = torch.Tensor.narrow, torch.Tensor.copy_, torch.Tensor.stride
_is_contiguous = torch.Tensor.is_contiguous


def strides_of(tensor: torch.Tensor) -> Strides:
    """The strides in elements; None where they are a contiguous tensor's (axes of one element do not count)."""
    return None if _is_contiguous(tensor) else tuple(_stride(tensor))


def extent(shape: tuple[int, ...], strides: Strides) -> int:
    """Elements of memory between the first and the last element, both counted; 0 for a tensor without elements."""
    if 0 in shape:
        return 0
    if strides is not None:
        return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return math.prod(shape)


def shaped(memory: torch.Tensor, shape: tuple[int, ...], strides: Strides) -> torch.Tensor:
    """The flat `memory`, of `extent(shape, strides)` elements, seen as a tensor."""
    return memory.reshape(shape) if strides is None else memory.as_strided(shape, strides)


def gaps(shape: tuple[int, ...], strides: Strides) -> torch.Tensor | None:
    """Bool mask over the memory of a tensor: what lies between its elements; None where there is no gap."""
    if strides is None:
        return None
    elements = math.prod(size for size, stride in zip(shape, strides, strict=True) if stride)
    if elements == extent(shape, strides):
        return None
    mask = torch.ones(extent(shape, strides), dtype=torch.bool)
    distinct(shaped(mask, shape, strides)).fill_(False)
    return mask


def distinct(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """A view of `tensor` with each axis cut to one element along which `like` (or itself) has stride 0."""
    for axis, stride in enumerate(_stride(tensor if like is None else like)):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = _narrow(tensor, axis, 0, 1)
    return tensor


def fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy `source`, of the same shape, into `target`, which may be expanded."""
    _copy(distinct(target), distinct(source, like=target))


def fill_alike(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> bool:
    """Copy each of `sources` into its target, if they have exactly the same dtypes and shapes; whether they do."""
    fits = len(targets) == len(sources) and all(
        a.dtype == b.dtype and a.shape == b.shape for a, b in zip(targets, sources, strict=True)
    )
    if fits:
        for target, source in zip(targets, sources, strict=True):
            fill(target, source)
    return fits


def with_values(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A new tensor with shape, dtype, device and strides of `like` that holds `values`.

    `values` has the shape of `like`, or that of `distinct(like)`.
    """
    made = torch.empty_strided(like.shape, _stride(like), dtype=like.dtype, device=like.device)
    _copy(distinct(made), distinct(values, like=like))
    return made


def duplicate(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with the same strides in memory of its own."""
    return with_values(tensor, tensor)
