"""Inputs that a task does not promise: another shape, another dtype.

Whoever wrote a kernel for one shape has kept the task's word, so that what comes of these is reported, and
decides only where it is asked to. Works on the trusted side, on tensors; whether the reference accepts them
is for the caller to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.cases import Case
from kb_ray.bench.child.strides import strides_of
from kb_ray.bench.child.tree import dtype_name
from kb_ray.bench.child.values import Bag, TensorRef

MORE_ROWS = 3
"""By how much the leading axis grows: an odd number, so that no block size divides the new one."""

Inputs = Iterator[tuple[wire.Tree, list[torch.Tensor]]]


def larger(case: Case, given: list[torch.Tensor], seed: int) -> Inputs:
    """More rows: first of all inputs that share the first one's leading axis, then of the first one alone."""
    sized = [i for i, tensor in enumerate(case.inputs) if tensor.dim() and tensor.shape[0]]
    if not sized:
        return
    alike = [i for i in sized if case.inputs[i].shape[0] == case.inputs[sized[0]].shape[0]]
    for grown in [alike] if alike == sized[:1] else [alike, sized[:1]]:
        inputs = [_grown(t, seed + i) if i in grown else t.clone() for i, t in enumerate(case.inputs)]
        yield _retyped(case.inputs_tree, inputs), inputs


def _grown(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """The rows in another order, and some of them once more."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(tensor.shape[0], generator=generator)
    more = torch.randint(0, tensor.shape[0], (MORE_ROWS,), generator=generator)
    return tensor[torch.cat([rows, more]).to(tensor.device)].contiguous()


def half(case: Case, given: list[torch.Tensor], seed: int) -> Inputs:
    """float32 inputs as float16; only where there are no weights, which would have to follow."""
    singles = [t.dtype is torch.float32 for t in case.inputs]
    if not any(singles) or any(t.is_floating_point() for t in given):
        return
    inputs = [t.half() if single else t.clone() for t, single in zip(case.inputs, singles, strict=True)]
    yield _retyped(case.inputs_tree, inputs), inputs


def _retyped(tree: wire.Tree, tensors: list[torch.Tensor]) -> wire.Tree:
    """The same tree for tensors of other shapes or dtypes."""
    match tree:
        case TensorRef():
            now = tensors[tree.index]
            return replace(tree, dtype=dtype_name(now.dtype), shape=tuple(now.shape), strides=strides_of(now))
        case list() | tuple():
            return type(tree)(_retyped(item, tensors) for item in tree)
        case dict():
            return {key: _retyped(item, tensors) for key, item in tree.items()}
        case Bag():
            return replace(tree, fields={key: _retyped(item, tensors) for key, item in tree.fields.items()})
        case _:
            return tree


INPUTS: dict[str, Callable[[Case, list[torch.Tensor], int], Inputs]] = {"shape": larger, "dtype": half}
