"""Changes of inputs between calls: there are some wherever there can be, and what a task may promise still holds."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable

import pytest
import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.changes import Change, changes_by
from kb_ray.bench.child.plans import FEWEST, heard, plans_of, told


def changes_of(inputs: list[torch.Tensor]) -> list[Change]:
    """As they are planned in one process and made in another."""
    return changes_by(heard(wire.decode(wire.encode(told(plans_of(inputs))))), inputs)


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
    check_promise(name, "cpu")


def check_promise(name: str, device: str) -> None:
    """On a device."""
    given, holds = PROMISED[name]
    x, original = _on(device, given), _on(device, given)
    assert holds(x.cpu()), "it did before"
    (change,) = changes_of([x])
    again = 0
    for _ in range(40):
        before = x.clone()
        change.make()
        assert holds(x.cpu())
        assert _differing(x, original) > 0, "and it is changed"
        again += _differing(x, before) == 0
    change.put_back()
    assert _differing(x, original) == 0
    for _ in range(40):
        before = x.clone()
        change.go_on()
        assert holds(x.cpu())
        again += _differing(x, before) == 0
    # Two pairs in turn, or slices that have become alike: rare, and by chance.
    assert again <= 8, "nearly each time to something else"


def _on(device: str, given: torch.Tensor) -> torch.Tensor:
    """A copy there, of the same layout."""
    made = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=device)
    return made.copy_(given)


def _alike(t: torch.Tensor) -> torch.Tensor:
    """Where dtypes have no comparison: as one that has."""
    plain = {torch.uint32: torch.int32, torch.float8_e4m3fn: torch.uint8}
    return t.view(plain.get(t.dtype, t.dtype))


def _differing(x: torch.Tensor, y: torch.Tensor) -> int:
    return int((_alike(x) != _alike(y)).sum())


LAYOUTS: dict[str, tuple[torch.Tensor, int]] = {
    "channels last": (torch.rand(4, 8, 6, 6).contiguous(memory_format=torch.channels_last), 4 * 6 * 6),
    "transposed": (torch.rand(40, 30).T, 30),
    "not from the beginning": (torch.rand(2000)[7:], 16),
    "with gaps": (torch.rand(400)[::2], 16),
    "complex": (torch.randn(100, dtype=torch.complex128), 16),
    "half": (torch.randn(100, dtype=torch.bfloat16), 16),
    "float8": (torch.rand(100).add(0.1).to(torch.float8_e4m3fn), 16),
    "bools": (torch.rand(100) > 0.5, 16),
    "unsigned": (torch.randint(9, (100,)).to(torch.int32).view(torch.uint32), 16),
    "many matrices of one element": (torch.rand(40, 1, 1), 16),
    "many small symmetric matrices": (torch.eye(2) + torch.rand(40, 1, 1), 4 * 4),
}
"""A tensor, and elements of a slice at most."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_in_any_order_and_of_any_kind_is_changed_a_little(name: str) -> None:
    check_layout(name, "cpu")


def check_layout(name: str, device: str) -> None:
    """On a device."""
    given, most = LAYOUTS[name]
    x, before = _on(device, given), _on(device, given)
    (change,) = changes_of([x])
    for _ in range(3):
        change.make()
        # Two exchanges of two slices.
        assert 0 < _differing(x, before) <= 4 * most
    change.put_back()
    assert _differing(x, before) == 0
    change.go_on()
    assert 0 < _differing(x, before) <= 4 * most


def test_hardly_two_calls_find_the_same() -> None:
    x, seen = torch.rand(4000), set[bytes]()
    (change,) = changes_of([x])
    for _ in range(50):
        change.make()
        seen.add(x.numpy().tobytes())
    assert len(seen) >= 46


def test_after_all_was_filled_anew_nothing_of_before_comes_back() -> None:
    for x, anew in ((torch.arange(400), torch.arange(400) * 3), (torch.rand(400), torch.rand(400))):
        (change,) = changes_of([x])
        change.make()
        x.copy_(anew)
        change.filled()
        change.put_back()
        assert torch.equal(x, anew)
        change.go_on()
        assert _differing(x, anew) > 0
        assert x.dtype.is_floating_point or _rising(x)


def test_a_long_input_in_order_costs_no_list_of_its_places() -> None:
    (change,) = changes_of([torch.arange(1 << 22)])
    assert len(change._places) == 1024  # type: ignore[attr-defined]


def test_integers_are_left_to_the_floats_that_they_are_about_where_those_can_be_changed() -> None:
    x, positions, scale = torch.rand(400), torch.randperm(400), torch.rand(1)
    assert len(changes_of([x, positions, scale])) == 1
    for beside in (scale, torch.ones(400), torch.eye(64), torch.rand(1).expand(400)):
        (change,) = changes_of([positions, beside])
        before = positions.clone()
        change.make()
        assert not torch.equal(positions, before)
        change.put_back()


def test_of_hundreds_of_inputs_some_are_changed() -> None:
    inputs = [torch.rand(40 + n % 7) for n in range(400)]
    found = plans_of(inputs)
    assert len(found) == len(changes_of(inputs)) == 64
    assert all(inputs[plan.input].numel() == 46 for plan in found[:50]), "the largest"


def test_of_several_integers_the_largest_alone_is_changed_and_none_that_counts_others() -> None:
    tokens, lengths, starts = torch.randint(99, (1000,)), torch.randint(9, (64,)), torch.arange(64)
    before = tokens.clone(), lengths.clone(), starts.clone()
    (change,) = changes_of([lengths, tokens, starts])
    change.make()
    assert [torch.equal(*pair) for pair in zip((tokens, lengths, starts), before, strict=True)] == [False, True, True]
    assert changes_of([lengths, torch.randint(9, (64,))]) == [], "whose starts go with whose lengths nobody knows"
    assert changes_of([torch.arange(1000), lengths]) == []
    assert len(changes_of([torch.arange(1000)])) == 1


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(FEWEST - 1), torch.rand(0), torch.rand(()), torch.zeros(2, 40).bool(), torch.ones(40, 3),
        torch.eye(64), torch.rand(1).expand(400), torch.rand(100).unfold(0, 10, 1), torch.rand(2, 2, 2, 2, 2),
        torch.randint(1, 9, (6, 8)) * torch.tensor([1, 1000, 1, 1, 1, 1, 1, 50]),
    ],
    ids=["too little", "empty", "one", "all False", "all ones", "identity", "expanded", "overlapping", "one pair",
         "features of a few samples"],
)  # fmt: skip
def test_what_cannot_be_another_or_may_not_stays(x: torch.Tensor) -> None:
    before = x.clone()
    assert changes_of([x]) == []
    assert torch.equal(x, before)


def test_processes_that_were_forked_draw_each_for_itself() -> None:
    x = torch.rand(4000)
    (change,) = changes_of([x])

    def drawn() -> bytes:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            random.seed(0)
            change.make()
            os.write(write, hashlib.sha256(x.numpy().tobytes()).digest())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(write)
        with os.fdopen(read, "rb") as told:
            return told.read()

    assert len({drawn() for _ in range(6)}) >= 5
