"""Changes of inputs between calls: there are some wherever there can be, and what a task may promise still holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kb_ray.bench.child.changes import CHANGED, changes_of


def _rising(t: torch.Tensor) -> bool:
    return bool((t.long().diff(dim=-1) >= 0).all())


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


PROMISED: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], bool]]] = {
    "offsets": (torch.arange(400), _with_ends),
    "offsets of rows": (torch.randint(1, 9, (40, 400)).cumsum(-1), _rising),
    "unsigned offsets": (torch.randint(1, 9, (400,)).cumsum(0).to(torch.int32).view(torch.uint32), _rising),
    "lengths, longest first": (torch.randint(99, (400,)).sort(descending=True).values, _falling),
    "causal mask": (torch.ones(40, 40).tril().flip(-1).bool(), _rising),
    "positive definite": (_spd(), _definite),
    "several of those": (_spd(3), _definite),
    "hermitian": (_spd(dtype=torch.complex128), _definite),
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
    return t.view(torch.int32) if t.dtype is torch.uint32 else t


@pytest.mark.parametrize(
    "x",
    [torch.rand(4, 8, 6, 6).contiguous(memory_format=torch.channels_last), torch.rand(40, 30).T, torch.rand(2000)[7:]],
    ids=["channels last", "transposed", "not from the beginning"],
)
def test_memory_in_any_order_is_changed(x: torch.Tensor) -> None:
    before = x.clone()
    (change,) = changes_of([x])
    change.make(lasting=False)
    assert 0 < (x != before).sum() <= CHANGED
    change.put_back()
    assert torch.equal(x, before)


def test_integers_are_left_to_the_floats_that_they_are_about_where_those_can_be_changed() -> None:
    x, positions, scale = torch.rand(400), torch.randperm(400), torch.rand(1)
    assert len(changes_of([x, positions, scale])) == 1
    for beside in (scale, torch.rand(400)[::2], torch.rand(1).expand(400)):
        (change,) = changes_of([positions, beside])
        before = positions.clone()
        change.make(lasting=False)
        assert not torch.equal(positions, before)
        change.put_back()


def test_many_matrices_of_one_element_are_numbers() -> None:
    x = torch.rand(40, 1, 1)
    before = x.clone()
    (change,) = changes_of([x])
    change.make(lasting=True)
    assert not torch.equal(x, before)


@pytest.mark.parametrize("x", [torch.rand(2 * CHANGED - 1), torch.rand(0), torch.rand(()), torch.zeros(2, 40).bool()])
def test_what_is_too_little_stays(x: torch.Tensor) -> None:
    assert changes_of([x]) == []
