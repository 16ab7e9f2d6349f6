"""Changes of inputs between calls: there are some wherever there can be, and what a task may promise still holds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from kb_ray.bench.child.changes import FEWEST, changes_of


def _rising(t: torch.Tensor) -> bool:
    return bool((t.long().diff(dim=-1) >= 0).all())


def _rising_floats(t: torch.Tensor) -> bool:
    return bool((t.diff(dim=-1) >= 0).all())


def _with_ends(t: torch.Tensor) -> bool:
    return _rising(t) and (int(t[0]), int(t[-1])) == (0, 399)


def _falling(t: torch.Tensor) -> bool:
    return _rising(-t)


def _symmetric(t: torch.Tensor) -> bool:
    # A product with a transpose is so but for rounding.
    return torch.allclose(t, t.mH)


def _definite(t: torch.Tensor) -> bool:
    torch.linalg.cholesky(t)
    return _symmetric(t)


def _spd(*batch: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    a = torch.randn(*batch, 64, 64, dtype=dtype)
    return a @ a.mH + torch.eye(64, dtype=dtype)


def _in_range(*highest: int) -> Callable[[torch.Tensor], bool]:
    """Of columns that each have a range of their own."""
    return lambda t: bool((t < torch.tensor(highest)).all())


def _invertible(t: torch.Tensor) -> bool:
    torch.linalg.inv(t)
    return True


def _edges(t: torch.Tensor) -> bool:
    """Of the pairs (i, i + 9)."""
    return bool((t[1] - t[0] == 9).all())


def _distribution(t: torch.Tensor) -> bool:
    return torch.allclose(t.sum(-1), torch.ones(len(t)))


PROMISED: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], bool]]] = {
    "offsets": (torch.arange(400), _with_ends),
    "offsets of rows": (torch.randint(1, 9, (40, 400)).cumsum(-1), _rising),
    "unsigned offsets": (torch.randint(1, 9, (400,)).cumsum(0).to(torch.int32).view(torch.uint32), _rising),
    "lengths, longest first": (torch.randint(99, (400,)).sort(descending=True).values, _falling),
    "causal mask": (torch.ones(40, 40).tril().flip(-1).bool(), _rising),
    "positive definite": (_spd(), _definite),
    "several of those": (_spd(3), _definite),
    "hermitian": (_spd(dtype=torch.complex128), _definite),
    "boundaries": (torch.rand(400).sort().values, _rising_floats),
    "cumulative distributions": (torch.rand(30, 100).softmax(-1).cumsum(-1), _rising_floats),
    "categories of samples": (
        torch.stack([torch.randint(n, (4096,)) for n in (1000, 50, 10)], 1),
        _in_range(1000, 50, 10),
    ),
    "samples of categories": (
        torch.stack([torch.randint(n, (4096,)) for n in (1000, 50, 10)]),
        lambda t: _in_range(1000, 50, 10)(t.T),
    ),
    "positions of several": (torch.arange(400).repeat(5, 1), _rising),
    "edges": (torch.randperm(401) + torch.tensor([[0], [9]]), _edges),
    "boxes with the number of their image": (
        torch.cat([torch.randint(4, (128, 1)), 100 * torch.rand(128, 4)], 1),
        _in_range(4, 101, 101, 101, 101),
    ),
    "a permutation": (torch.randperm(400), lambda t: torch.equal(t.sort().values, torch.arange(400))),
    "distributions": (torch.rand(30, 100).softmax(-1), _distribution),
    "bidiagonal": (torch.eye(64) + torch.diag(torch.rand(63), 1), _invertible),
    "triangular": (torch.ones(64, 64).tril(), _invertible),
    "a matrix that permutes": (torch.eye(64)[torch.randperm(64)], _invertible),
    "whole numbers, symmetric": ((lambda a: a + a.T)(torch.randint(9, (50, 50))), _symmetric),
}


@pytest.mark.parametrize("name", PROMISED)
def test_what_a_task_may_promise_of_its_inputs_holds(name: str) -> None:
    given, holds = PROMISED[name]
    x = given.clone()
    assert holds(x), "it did before"
    (change,) = changes_of([x])
    seen = []
    for _ in range(40):
        change.make(lasting=False)
        assert holds(x)
        seen.append(not torch.equal(_alike(x), _alike(given)))
    assert all(seen), "and it is changed"
    change.put_back()
    assert torch.equal(_alike(x), _alike(given))
    for _ in range(40):
        change.make(lasting=True)
        assert holds(x)


def _alike(t: torch.Tensor) -> torch.Tensor:
    """Where dtypes have no comparison: as one that has."""
    plain = {torch.uint32: torch.int32, torch.float8_e4m3fn: torch.uint8}
    return t.view(plain.get(t.dtype, t.dtype))


def _differing(x: torch.Tensor, y: torch.Tensor) -> int:
    return int((_alike(x) != _alike(y)).sum())


@pytest.mark.parametrize(
    ("x", "most"),
    [
        (torch.rand(4, 8, 6, 6).contiguous(memory_format=torch.channels_last), 2 * 4 * 6 * 6),
        (torch.rand(40, 30).T, 2 * 30),
        (torch.rand(2000)[7:], 2 * 16),
        (torch.rand(400)[::2], 2 * 16),
        (torch.randn(100, dtype=torch.complex128), 2 * 16),
        (torch.randn(100, dtype=torch.bfloat16), 2 * 16),
        (torch.rand(100).add(0.1).to(torch.float8_e4m3fn).view(torch.uint8).view(torch.float8_e4m3fn), 2 * 16),
        (torch.rand(40, 1, 1), 2 * 16),
        (torch.eye(2) + torch.rand(40, 1, 1), 2 * 4 * 4),
    ],
    ids=["channels last", "transposed", "not from the beginning", "with gaps", "complex", "half", "float8",
         "many matrices of one element", "many small symmetric matrices"],
)  # fmt: skip
def test_memory_in_any_order_and_of_any_kind_is_changed_a_little(x: torch.Tensor, most: int) -> None:
    before = x.clone()
    (change,) = changes_of([x])
    for lasting in (False, False, True, True):
        was = x.clone()
        change.make(lasting=lasting)
        assert 0 < _differing(x, was) <= 2 * most
    change.put_back()
    assert _differing(x, before) > 0, "what was to last has lasted"


def test_what_is_put_back_is_as_it_was() -> None:
    for x in (torch.rand(400), torch.rand(40, 30).T, torch.arange(400), _spd()):
        before = x.clone()
        (change,) = changes_of([x])
        for _ in range(9):
            change.make(lasting=False)
        change.put_back()
        change.put_back()
        assert torch.equal(x, before)


def test_integers_are_left_to_the_floats_that_they_are_about_where_those_can_be_changed() -> None:
    x, positions, scale = torch.rand(400), torch.randperm(400), torch.rand(1)
    assert len(changes_of([x, positions, scale])) == 1
    for beside in (scale, torch.ones(400), torch.eye(64), torch.rand(1).expand(400)):
        (change,) = changes_of([positions, beside])
        before = positions.clone()
        change.make(lasting=False)
        assert not torch.equal(positions, before)
        change.put_back()


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(FEWEST - 1), torch.rand(0), torch.rand(()), torch.zeros(2, 40).bool(), torch.ones(40, 3),
        torch.eye(64), torch.rand(1).expand(400), torch.rand(100).unfold(0, 10, 1),
        torch.randint(1, 9, (6, 8)) * torch.tensor([1, 1000, 1, 1, 1, 1, 1, 50]),
    ],
    ids=["too little", "empty", "one", "all False", "all ones", "identity", "expanded", "overlapping",
         "features of a few samples"],
)  # fmt: skip
def test_what_cannot_be_another_or_may_not_stays(x: torch.Tensor) -> None:
    before = x.clone()
    assert changes_of([x]) == []
    assert torch.equal(x, before)


def test_a_candidate_that_seeds_pythons_numbers_learns_nothing_of_what_comes() -> None:
    x, seen = torch.rand(4000), set()
    for _ in range(8):
        (change,) = changes_of([x])
        random.seed(0)
        change.make(lasting=False)
        seen.add(x.numpy().tobytes())
        change.put_back()
    assert len(seen) > 1
