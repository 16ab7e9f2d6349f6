"""Tensors to compare, and what a comparison says is wrong, for tests of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kb_ray.bench.child.compare import Comparison, compare
from kb_ray.bench.child.tolerance import tolerances
from kb_ray.bench.child.tree import flatten
from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import ErrorDetail

# As in the judge; several threads on a busy machine wait for each other longer than these tests take.
torch.set_num_threads(1)

INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def error_of(comparison: Comparison) -> ErrorDetail:
    assert comparison.error is not None
    assert comparison.error.category == CATEGORY_BY_STATUS[comparison.status]
    return comparison.error


def compared(expected: Any, got: Any, oracle: Any = None, inputs: Sequence[torch.Tensor] = ()) -> Comparison:
    """`got` held against `expected` with tolerances that know the same outputs in float64."""
    exact = None if oracle is None else flatten(oracle)[1]
    return compare(expected, got, tolerances(flatten(expected)[1], exact, inputs), inputs)
