"""Which calls are looked at: drawn for each case in each block, in memory where nothing right lies before."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from kb_ray.bench.child import looks, wire
from kb_ray.bench.child.cases import Case
from kb_ray.bench.child.inputs import variants
from kb_ray.bench.child.looks import Looks, unlike
from kb_ray.bench.child.timing import hand_over
from kb_ray.bench.child.tolerance import Tolerance
from kb_ray.bench.child.tree import flatten


class Memory:
    """What a child offers for looks: memory by name."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []

    def sharing(self) -> Any:
        return nullcontext()

    def put(self, slot: str, tree: wire.Tree, tensors: list[torch.Tensor], timeout_s: float) -> None:
        self.tensors = [t.clone() for t in tensors]

    def refill(self, slot: str, tensors: list[torch.Tensor]) -> None:
        for held, new in zip(self.tensors, tensors, strict=True):
            held.copy_(new)

    def held(self, slot: str) -> list[torch.Tensor]:
        return self.tensors


def case(*outputs: torch.Tensor) -> Case:
    tree, tensors = flatten(tuple(outputs))
    inputs = [torch.rand(5)]
    return Case(
        variants(1)[0], flatten(inputs)[0], inputs, tree, tensors, None, [], [Tolerance(1e-6, 1e-6)] * len(tensors)
    )


def two() -> list[Case]:
    return [case(torch.rand(3, 2), torch.arange(4)), case(torch.rand(2, 2), torch.arange(5))]


def begun(cases: list[Case], blocks: int = 5) -> tuple[Looks, Memory]:
    memory = Memory()
    return Looks(memory, cases, blocks, 1.0), memory  # type: ignore[arg-type]  # what it asks of a child, and no more


def answer(looks: Looks, memory: Memory, drawn: list[list[int]], cases: list[Case], wrong: int = -1) -> None:
    """What a child does: the right output of each call, but for one that is wrong."""
    trees = []
    for call, first, end in drawn:
        outputs = [t.clone() for t in cases[call % len(cases)].outputs]
        if call == wrong:
            outputs[0] += 1
        trees.append(hand_over(tuple(outputs), memory.tensors[first:end]))
    looks.told(trees)


def test_every_case_is_looked_at_in_every_block_and_in_the_repeats() -> None:
    cases = two()
    drawn, memory = begun(cases)
    places = []
    for size in (10, 10, 10, 10, 9):
        block = drawn.in_block(size)
        assert sorted(call % 2 for call, *_ in block) == [0, 1]
        assert all(call < size for call, *_ in block)
        places += [tuple(look[1:]) for look in block]
        answer(drawn, memory, block, cases)
    for repeated in (100, 25):
        (look,) = drawn.in_repeats(repeated)
        assert look[0] < repeated
        places.append(tuple(look[1:]))
        answer(drawn, memory, [look], cases)
    assert len(set(places)) == len(places) == 12
    assert drawn.wrong() is None


@pytest.mark.parametrize("block", range(6))
def test_one_wrong_call_is_found_wherever_it_is(block: int) -> None:
    cases = two()
    drawn, memory = begun(cases)
    for number in range(6):
        given = drawn.in_block(10) if number < 5 else drawn.in_repeats(40)
        answer(drawn, memory, given, cases, wrong=given[-1][0] if number == block else -1)
    error = drawn.wrong()
    assert error is not None
    assert "timed calls" in error.message


def test_outputs_that_differ_within_what_is_allowed_are_right() -> None:
    cases = [case(torch.rand(4))]
    drawn, memory = begun(cases)
    for number in range(5):
        ((_, first, end),) = drawn.in_block(10)
        drawn.told([hand_over((cases[0].outputs[0] + 1e-8 * number,), memory.tensors[first:end])])
    assert drawn.wrong() is None


def test_calls_are_drawn_and_not_counted_to() -> None:
    drawn, _ = begun([case(torch.rand(2))], blocks=200)
    assert len({drawn.in_block(10)[0][0] for _ in range(200)}) == 10


def test_what_was_never_handed_over_is_wrong_and_so_is_what_lay_there_before_another_round() -> None:
    cases = [case(torch.zeros(4), torch.zeros(3, dtype=torch.bool))]
    drawn, memory = begun(cases, blocks=1)
    tree = cases[0].outputs_tree
    answer(drawn, memory, drawn.in_block(3), cases)
    assert drawn.wrong() is None
    drawn.begin()
    assert drawn.wrong() is None
    drawn.in_block(3)
    drawn.told([tree])
    assert drawn.wrong() is not None


def test_an_output_of_another_shape_stays_out() -> None:
    cases = [case(torch.rand(4))]
    drawn, memory = begun(cases, blocks=1)
    ((_, first, end),) = drawn.in_block(3)
    drawn.told([hand_over((torch.rand(5),), memory.tensors[first:end])])
    error = drawn.wrong()
    assert error is not None
    assert "(5,)" in f"{error.detail} {error.message}"


@pytest.mark.parametrize("trees", [None, [], [None, None], "x", [3.0]])
def test_what_is_not_told_or_nonsense_is_wrong(trees: object) -> None:
    cases = [case(torch.rand(4))]
    drawn, memory = begun(cases, blocks=1)
    ((_, first, end),) = drawn.in_block(3)
    hand_over((cases[0].outputs[0],), memory.tensors[first:end])
    drawn.told(trees)
    assert drawn.wrong() is not None


def test_plain_values_of_an_output_are_compared_too() -> None:
    whole = case(torch.rand(4))
    whole.outputs_tree = (*whole.outputs_tree, 7)  # type: ignore[misc]
    drawn, memory = begun([whole], blocks=1)
    ((_, first, end),) = drawn.in_block(3)
    drawn.told([hand_over((whole.outputs[0], 8), memory.tensors[first:end])])
    assert drawn.wrong() is not None


def test_of_large_outputs_one_is_looked_at_in_a_block_that_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "LOOKED_BYTES", 100)
    cases, blocks = [case(torch.rand(30))], set()
    for _ in range(60):
        drawn, memory = begun(cases)
        found = [drawn.in_block(10) for _ in range(5)]
        assert drawn.in_repeats(10) == []
        assert [len(block) for block in found if block] == [1]
        assert len(memory.tensors) == 1
        blocks.add(next(i for i, block in enumerate(found) if block))
    assert blocks == {0, 1, 2, 3, 4}


def test_a_run_of_too_few_repeats_for_the_case_in_turn_is_not_looked_at() -> None:
    drawn, _ = begun(two(), blocks=1)
    drawn.in_block(4)
    assert len(drawn.in_repeats(4)) == 1
    assert drawn.in_repeats(1) == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(3, 4),
        torch.rand(2).half(),
        torch.rand(2).bfloat16(),
        torch.rand(2, dtype=torch.complex64),
        torch.rand(2).to(torch.float8_e4m3fn),
        torch.arange(300),
        torch.arange(300, dtype=torch.uint8),
        torch.zeros(300, dtype=torch.bool),
        torch.rand(()),
        torch.rand(0, 3),
    ],
    ids=lambda t: f"{t.dtype} {tuple(t.shape)}",
)
def test_memory_for_outputs_begins_as_none_of_them(tensor: torch.Tensor) -> None:
    made = unlike(tensor)
    assert (made.dtype, made.shape) == (tensor.dtype, tensor.shape)
    if tensor.is_floating_point() or tensor.is_complex():
        assert torch.isnan(made if made.element_size() > 1 else made.float()).all()
    else:
        assert not torch.equal(made, tensor)
