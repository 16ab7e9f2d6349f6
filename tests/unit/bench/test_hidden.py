"""Inputs that a task does not promise: more rows, half precision, and nothing where neither makes sense."""

from __future__ import annotations

import torch

from kb_ray.bench.child.cases import Case
from kb_ray.bench.child.hidden import MORE_ROWS, half, larger
from kb_ray.bench.child.inputs import Variant
from kb_ray.bench.child.tree import flatten, unflatten


def case(*values: object) -> Case:
    tree, tensors = flatten(list(values))
    return Case(Variant("as_drawn", "as_drawn", False), tree, tensors, None, [], None, [])


def test_rows_grow_together_first_and_then_those_of_the_first_input_alone() -> None:
    x, y, scale, other = torch.rand(8, 4), torch.rand(8), 2.0, torch.rand(5, 8)
    made = [(unflatten(tree, inputs)) for tree, inputs in larger(case(x, y, scale, other), [], 0)]
    rows = 8 + MORE_ROWS
    assert [[tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in values] for values in made] == [
        [(rows, 4), (rows,), 2.0, (5, 8)],
        [(rows, 4), (8,), 2.0, (5, 8)],
    ]
    grown = made[0][0]
    assert {tuple(row) for row in grown.tolist()} == {tuple(row) for row in x.tolist()}
    assert not torch.equal(grown[:8], x)


def test_single_precision_becomes_half_and_the_rest_stays() -> None:
    labels = torch.arange(4)
    ((tree, inputs),) = half(case(torch.rand(4, 3), labels, torch.rand(2).double()), [], 0)
    values = unflatten(tree, inputs)
    assert [v.dtype for v in values] == [torch.float16, torch.int64, torch.float64]
    assert torch.equal(values[1], labels)


def test_nothing_is_made_where_it_makes_no_sense() -> None:
    assert list(larger(case(3, torch.tensor(1.0)), [], 0)) == []
    assert list(half(case(torch.arange(3)), [], 0)) == []
    assert list(half(case(torch.rand(3)), [torch.rand(3, 3)], 0)) == []  # weights would have to follow
