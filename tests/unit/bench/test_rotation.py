"""Inputs of timed calls: other values at one address for every call, the right ones where outputs are looked at."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.plans import FEWEST, Plan, plans_of
from kb_ray.bench.child.rotation import Rotation
from kb_ray.bench.child.tree import flatten


@dataclass
class Set:
    tree: wire.Tree
    tensors: list[torch.Tensor]
    plans: list[Plan]


def held(*values: object) -> Set:
    tree, tensors = flatten(list(values))
    return Set(tree, tensors, plans_of(tensors))


def test_sets_take_turns_in_one_piece_of_memory_and_hardly_two_calls_find_the_same() -> None:
    a, b = torch.rand(50, 3), torch.rand(50, 3)
    inputs = Rotation([held(a, 7), held(b, 7)], mutated=False)
    seen = []
    for call in range(6):
        inputs.prepare(call, looked_at=False)
        x, number = inputs.values[call % 2]
        assert number == 7
        seen.append(x.clone())
    assert inputs.values[0][0].data_ptr() == inputs.values[1][0].data_ptr() != a.data_ptr()
    # One in thousands is as one before.
    assert sum(torch.equal(x, y) for i, x in enumerate(seen) for y in seen[:i]) <= 1
    inputs.prepare(6, looked_at=True)
    assert torch.equal(inputs.values[0][0], a)
    inputs.prepare(7, looked_at=True)
    assert torch.equal(inputs.values[1][0], b)


def test_integers_take_each_others_places_and_sets_of_other_shapes_have_memory_of_their_own() -> None:
    labels = torch.randint(400, (400,))
    inputs = Rotation([held(labels), held(torch.randint(400, (300,)))], mutated=False)
    inputs.prepare(0, looked_at=False)
    assert 0 < (inputs.values[0][0] != labels).sum() <= 2 * FEWEST
    assert 0 <= inputs.values[0][0].min() <= inputs.values[0][0].max() < 400
    assert inputs.values[1][0].shape == (300,)
    inputs.prepare(2, looked_at=True)
    assert torch.equal(inputs.values[0][0], labels)


def test_integers_beside_floats_stay() -> None:
    x, positions = torch.rand(400), torch.randperm(400)
    inputs = Rotation([held(x, positions)], mutated=False)
    before = x.clone(), positions.clone()
    inputs.vary(0, looked_at=False)
    assert not torch.equal(x, before[0])
    assert torch.equal(positions, before[1])


def test_too_few_elements_stay() -> None:
    few = torch.rand(FEWEST - 1)
    inputs = Rotation([held(few)], mutated=False)
    before = few.clone()
    inputs.prepare(0, looked_at=False)
    assert torch.equal(few, before)


def test_a_single_set_is_used_where_it_is_and_put_right_where_it_is_looked_at() -> None:
    x = torch.rand(4000)
    before = x.clone()
    inputs = Rotation([held(x)], mutated=False)
    assert inputs.values[0][0].data_ptr() == x.data_ptr()
    for put in (inputs.prepare, inputs.vary):
        found = []
        for call in range(3):
            put(call, looked_at=False)
            found.append(x.clone())
        assert all(not torch.equal(a, b) for a, b in zip([before, *found], found, strict=False))
        put(3, looked_at=True)
        assert torch.equal(x, before)


def test_what_calls_change_is_put_back_before_each() -> None:
    x = torch.rand(4000)
    inputs = Rotation([held(x)], mutated=True)
    for put in (inputs.prepare, inputs.vary):
        inputs.values[0][0].zero_()
        put(0, looked_at=False)
        assert 0 < (inputs.values[0][0] != x).sum() <= 2 * FEWEST
        inputs.values[0][0].zero_()
        put(1, looked_at=True)
        assert torch.equal(inputs.values[0][0], x)


def test_calls_that_are_varied_find_what_lies_there_but_for_a_few_elements() -> None:
    a, b = torch.rand(4000), torch.rand(4000)
    inputs = Rotation([held(a), held(b)], mutated=False)
    inputs.prepare(0, looked_at=True)
    seen = [a]
    for call in (1, 2, 3):
        inputs.vary(call, looked_at=False)
        seen.append(inputs.values[call % 2][0].clone())
        assert 0 < (seen[-1] != a).sum() <= 2 * call * FEWEST
    assert all(not torch.equal(x, y) for x, y in itertools.pairwise(seen))
    inputs.vary(5, looked_at=True)
    assert torch.equal(inputs.values[1][0], b)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float64, torch.int8])
def test_floats_of_every_width_are_changed_and_stay_finite(dtype: torch.dtype) -> None:
    x = (100 * torch.rand(4000)).to(dtype)
    before = x.clone()
    inputs = Rotation([held(x)], mutated=False)
    for call in range(5):
        inputs.vary(call, looked_at=False)
        assert 0 < (x.float() != before.float()).sum() <= 2 * FEWEST
        assert torch.isfinite(x.float()).all()
    inputs.prepare(5, looked_at=True)
    assert torch.equal(x.float(), before.float())
