"""Inputs of timed calls: other values at one address for every call, the right ones where outputs are looked at."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.rotation import Rotation
from kb_ray.bench.child.tree import flatten


@dataclass
class Set:
    tree: wire.Tree
    tensors: list[torch.Tensor]


def held(*values: object) -> Set:
    return Set(*flatten(list(values)))


def test_sets_take_turns_in_one_piece_of_memory_and_no_two_calls_find_the_same() -> None:
    a, b = torch.rand(50, 3), torch.rand(50, 3)
    inputs = Rotation([held(a, 7), held(b, 7)], mutated=False)
    seen = []
    for call in range(6):
        inputs.prepare(call, looked_at=False)
        x, number = inputs.values[call % 2]
        assert number == 7
        seen.append(x.clone())
    assert inputs.values[0][0].data_ptr() == inputs.values[1][0].data_ptr() != a.data_ptr()
    assert all(not torch.equal(x, y) for i, x in enumerate(seen) for y in seen[:i])
    inputs.prepare(6, looked_at=True)
    assert torch.equal(inputs.values[0][0], a)
    inputs.prepare(7, looked_at=True)
    assert torch.equal(inputs.values[1][0], b)


def test_integers_stay_and_sets_of_other_shapes_have_memory_of_their_own() -> None:
    labels = torch.arange(40)
    inputs = Rotation([held(labels), held(torch.arange(30))], mutated=False)
    inputs.prepare(0, looked_at=False)
    assert torch.equal(inputs.values[0][0], labels)
    assert inputs.values[1][0].shape == (30,)


def test_a_single_set_is_used_where_it_is_unless_calls_change_it() -> None:
    x = torch.rand(40)
    assert Rotation([held(x)], mutated=False).values[0][0].data_ptr() == x.data_ptr()
    inputs = Rotation([held(x)], mutated=True)
    inputs.values[0][0].zero_()
    inputs.prepare(0, looked_at=False)
    assert torch.equal(inputs.values[0][0], x)


def test_an_output_made_of_the_inputs_is_kept_from_the_next_call() -> None:
    a, b = torch.rand(40), torch.rand(40)
    inputs = Rotation([held(a), held(b)], mutated=False)
    inputs.prepare(0, looked_at=True)
    fresh = torch.ones(3)
    _, (kept, other) = inputs.keep((inputs.values[0][0].view(8, 5), fresh))
    inputs.prepare(1, looked_at=True)
    assert torch.equal(kept, a.view(8, 5))
    assert other.data_ptr() == fresh.data_ptr()
