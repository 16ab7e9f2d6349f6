"""Positions are compared by what they select, and nothing else passes under that name. B04"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kb_ray.bench.child.compare import compare
from kb_ray.bench.child.indices import select_alike
from kb_ray.records import Status
from tests.unit.bench.comparing import NAN, drawn, error_of

Make = Callable[[torch.Tensor], torch.Tensor]


def tied(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values with many ties, as spikes of one height or 16-bit inputs have."""
    return (drawn(*shape) * 2).round().to(dtype)


def last_argmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.shape[dim] - 1 - x.flip(dim).argmax(dim)


def other_order(x: torch.Tensor, dim: int, descending: bool) -> torch.Tensor:
    """The sort in which equal elements stand last first."""
    return x.shape[dim] - 1 - x.flip(dim).argsort(stable=True, dim=dim, descending=descending)


def first_order(x: torch.Tensor, dim: int, descending: bool) -> torch.Tensor:
    return x.argsort(stable=True, dim=dim, descending=descending)


EQUALLY_GOOD: dict[str, tuple[torch.Tensor, Make, Make]] = {
    "argmax of rows": (tied(64, 50), lambda x: x.argmax(1), lambda x: last_argmax(x, 1)),
    "argmax of columns": (tied(64, 50), lambda x: x.argmax(0), lambda x: last_argmax(x, 0)),
    "argmax, axis kept": (
        tied(8, 50, 3), lambda x: x.argmax(1, keepdim=True), lambda x: last_argmax(x, 1).unsqueeze(1),
    ),
    "argmin": (tied(64, 50), lambda x: x.argmin(1), lambda x: last_argmax(-x, 1)),
    "argmax of everything": (
        torch.tensor([0.0] * 9000 + [5, 5]).view(2, -1), lambda x: x.argmax(), lambda x: torch.tensor(9001),
    ),
    "argmax of joined axes": (
        tied(9, 10, 12), lambda x: x.flatten(1).argmax(1), lambda x: last_argmax(x.flatten(1), 1),
    ),
    "argmax of integers": (tied(64, 50, dtype=torch.int64), lambda x: x.argmax(1), lambda x: last_argmax(x, 1)),
    "argmax of float16": (tied(64, 50, dtype=torch.float16), lambda x: x.argmax(1), lambda x: last_argmax(x, 1)),
    "int32 positions": (tied(64, 50), lambda x: x.argmax(1).int(), lambda x: last_argmax(x, 1).int()),
    "argsort": (tied(20, 30), lambda x: first_order(x, 1, False), lambda x: other_order(x, 1, False)),
    "falling, of columns": (tied(20, 30), lambda x: first_order(x, 0, True), lambda x: other_order(x, 0, True)),
    "topk": (
        tied(20, 30), lambda x: first_order(x, 1, True)[:, :5], lambda x: other_order(x, 1, True)[:, :5],
    ),
    "smallest k": (
        tied(20, 30), lambda x: first_order(x, 1, False)[:, :5], lambda x: other_order(x, 1, False)[:, :5],
    ),
    "argmax among NaN": (
        torch.where(tied(64, 50) > 2, NAN, 1.0), lambda x: x.argmax(1), lambda x: last_argmax(x.nan_to_num(9.0), 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUALLY_GOOD)
def test_ties_may_be_broken_otherwise_B04(name: str) -> None:
    x, expected, other = EQUALLY_GOOD[name]
    want, have = expected(x), other(x)
    assert not torch.equal(want, have), "the case shows nothing"
    unrelated = drawn(7)
    assert compare(want, have, inputs=[unrelated, x]).status is Status.OK
    assert compare(have, want, inputs=[x]).status is Status.OK
    assert compare(want, have).status is Status.MISMATCH


@pytest.mark.parametrize("inputs", [[tied(20, 30)], []])
def test_ties_may_be_broken_otherwise_beside_the_values_too_B04(inputs: list[torch.Tensor]) -> None:
    x = tied(20, 30)
    values, want, have = x.sort(1).values, first_order(x, 1, False), other_order(x, 1, False)
    assert compare((values, want), (values, have), inputs=inputs).status is Status.OK
    assert compare((values, want), (values + 1, have), inputs=inputs).status is Status.MISMATCH
    assert compare((values, want), (values, want.roll(1, 1)), inputs=inputs).status is Status.MISMATCH


def constant(index: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(index)


def swapped_rows(index: torch.Tensor) -> torch.Tensor:
    return index.flip(0)


def out_of_range(index: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(index.numel()).view(index.shape) == 3, 1 << 40, index)


def negative(index: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(index.numel()).view(index.shape) == 3, -1, index)


def one_off(index: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(index.numel()).view(index.shape) == 3, (index + 1) % 30, index)


@pytest.mark.parametrize("attack", [constant, swapped_rows, out_of_range, negative, one_off])
@pytest.mark.parametrize("make", [lambda x: x.argmax(1), lambda x: x.argsort(1), lambda x: x.topk(4, 1).indices])
def test_positions_that_select_something_else_fail_A36(make: Make, attack: Make) -> None:
    x = drawn(20, 30)
    want = make(x)
    assert compare(want, attack(want), inputs=[x]).status is Status.MISMATCH


def test_the_same_position_twice_is_no_answer_to_topk() -> None:
    x = torch.tensor([[5.0, 5, 1, 0, 2, 3, 4, 4, -1, -2]]).repeat(6, 1)
    want = x.topk(4, 1).indices
    twice = want.clone()
    twice[:, 1] = twice[:, 0]
    assert compare(want, twice, inputs=[x]).status is Status.MISMATCH
    assert error_of(compare(want, twice, inputs=[x])).wrong_elements == 6


X, PATTERN = tied(40, 30), torch.arange(40) % 10
EXACT: dict[str, tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]] = {
    "labels": (PATTERN, (PATTERN + 1) % 10, [X]),
    "labels beside a constant source": (PATTERN, (PATTERN + 1) % 10, [torch.zeros(40, 30)]),
    "positions beside a sorted source of two values": (
        torch.arange(40), torch.arange(40).flip(0), [torch.ones(40)],
    ),
    "counts": ((X > 0).sum(1), (X > 0).sum(1) + 1, [X]),
    "a mask of bools": (X > 0, X > 1, [X]),
    "one number among few": (torch.tensor(1), torch.tensor(2), [torch.tensor([0.0, 3, 3, 1])]),
    "integers of another shape": (torch.arange(7), torch.arange(7).flip(0), [X]),
    "uint64": (PATTERN.to(torch.uint64), PATTERN.flip(0).to(torch.uint64), [X]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_other_integers_stay_exact(name: str) -> None:
    want, have, inputs = EXACT[name]
    assert compare(want, want.clone(), inputs=inputs).status is Status.OK
    assert compare(want, have, inputs=inputs).status is Status.MISMATCH


def test_positions_in_an_output_may_follow_its_rounding() -> None:
    logits = drawn(200, 16)
    logits[:, 3] = logits.amax(1) * (1 + 1e-7)
    logits[:, 9] = logits[:, 3]
    want = logits.argmax(1)
    theirs = logits * (1 + 1e-6 * drawn(200, 16, seed=3))
    have = theirs.argmax(1)
    assert not torch.equal(want, have)
    assert compare((logits, want), (theirs, have)).status is Status.OK
    assert compare((logits, want), (theirs, (want + 1) % 16)).status is Status.MISMATCH


def test_topk_of_an_intermediate_may_change_places_among_equal_values_only() -> None:
    values = torch.tensor([[4.0, 3, 3, 1], [9.0, 2, 1, 0]]).repeat(10, 1)
    want = torch.tensor([[7, 5, 2, 1], [3, 8, 6, 0]]).repeat(10, 1)
    swapped = want.clone()
    swapped[::2, 1:3] = swapped[::2, 1:3].flip(1)
    assert compare((values, want), (values, swapped)).status is Status.OK
    wrong = want.clone()
    wrong[1::2, 1:3] = wrong[1::2, 1:3].flip(1)
    assert compare((values, want), (values, wrong)).status is Status.MISMATCH
    foreign = swapped.clone()
    foreign[0, 1] = 6
    assert compare((values, want), (values, foreign)).status is Status.MISMATCH
    assert compare((torch.zeros(20, 4), want), (torch.zeros(20, 4), want.flip(1))).status is Status.MISMATCH


def test_medians_and_other_picks_are_known_by_the_values_beside_them() -> None:
    x = tied(50, 31)
    values, want = x.median(1)
    have = 30 - (x.flip(1) == values[:, None]).int().argmax(1)
    assert not torch.equal(want, have)
    assert compare((values, want), (values, have), inputs=[x]).status is Status.OK
    assert compare(want, have, inputs=[x]).status is Status.MISMATCH
    assert compare((values, want), (values, want.flip(0)), inputs=[x]).status is Status.MISMATCH


def test_nothing_is_found_in_what_cannot_be_sorted_or_holds_nothing() -> None:
    index = torch.zeros(4, dtype=torch.int64)
    for source in (torch.zeros(4, 0), torch.zeros(4, 3, dtype=torch.bool), torch.zeros(4, 3, dtype=torch.complex64)):
        assert not select_alike(index, index + 1, [source])
    assert not select_alike(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), [drawn(4, 3)])
