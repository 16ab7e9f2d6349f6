"""How a difference is told: position, figures and the regularity of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kb_ray.bench.child.compare import compare
from kb_ray.bench.child.tolerance import Tolerance, reduction_size, wrong_elements
from tests.unit.bench.comparing import INF, drawn, error_of

X = drawn(64, 64)


def without_tail(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.view(-1)[3000:] = 0
    return y


def every_eighth_off(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.view(-1)[5::8] += drawn(512, seed=9).abs() + 1
    return y


def changed(x: torch.Tensor, where: Any) -> torch.Tensor:
    y = x.clone()
    y[where] += drawn(*y[where].shape, seed=9).abs() + 1
    return y


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (lambda x: x * 2, "all elements, constant factor 2"),
        (lambda x: -x, "all elements, constant factor -1"),
        (lambda x: x + 0.5, "all elements, constant offset 0.5"),
        (torch.zeros_like, "all elements, all zeros"),
        (lambda x: x.t().contiguous(), "transposed"),
        (without_tail, "only the tail from flat index 3000"),
        (every_eighth_off, "every 8-th element from flat index 5"),
        (lambda x: changed(x, slice(None, None, 3)), "every 3-th row from 0"),
        (lambda x: changed(x, (slice(None), slice(1, None, 5))), "every 5-th column from 1"),
        (lambda x: changed(x, 7), "only row 7"),
        (lambda x: changed(x, (slice(None), slice(48, None))), "only the tail from column 48"),
        (lambda x: x + 1e-3, "precision: each error is small, all elements"),
        (lambda x: drawn(64, 64, seed=3), "all elements"),
    ],
)
def test_regularities_of_wrong_elements_are_named(change: Any, pattern: str) -> None:
    error = error_of(compare(X, change(X)))
    assert error.pattern == pattern


def test_a_matrix_written_in_the_other_order_is_seen_as_transposed() -> None:
    x = drawn(6, 10)
    assert "transposed" in (error_of(compare(x, x.t().contiguous().view(6, 10))).pattern or "")


def test_a_pattern_is_seen_where_some_of_it_is_right_by_chance() -> None:
    # Half of them are zeros that are right.
    want = X.relu()
    got = want.clone()
    got.view(-1)[6::8] = 0
    assert error_of(compare(want, got)).pattern == "every 8-th column from 6"
    line = drawn(4096).relu()
    thinned = line.clone()
    thinned[6::8] = 0
    assert error_of(compare(line, thinned)).pattern == "every 8-th element from flat index 6"


def test_more_dimensions_are_counted_from_0() -> None:
    x = drawn(4, 30, 9)
    assert error_of(compare(x, changed(x, (slice(None), slice(2, None, 7))))).pattern == (
        "every 7-th index of dimension 1 from 2"
    )


def test_a_few_wrong_elements_of_many_are_no_pattern() -> None:
    for places in ([0, 6 * 64, 12 * 64 + 3], [0, 2, 4090]):
        got = X.clone()
        got.view(-1)[places] += torch.tensor([1.0, 7.0, -3.0])
        assert error_of(compare(X, got)).pattern is None


def test_scattered_wrong_elements_have_no_pattern() -> None:
    got = X.clone()
    got.view(-1)[[3, 50, 1111]] += torch.tensor([1.0, 7.0, -3.0])
    assert error_of(compare(X, got)).pattern is None


def test_a_mismatch_is_told_with_figures_that_read_back_exactly() -> None:
    got = X.clone()
    got[2, 3] = 1.2345678
    error = error_of(compare(X, got))
    assert error.expected is not None
    assert error.got is not None
    assert torch.tensor(float(error.expected)) == X[2, 3]
    assert torch.tensor(float(error.got)) == got[2, 3]
    assert error.max_rel_error == pytest.approx(((got - X).abs() / X.abs()).max().item(), rel=1e-5)
    assert all(part in error.message for part in ("out at [2, 3]", error.expected, error.got, "1 of 4096"))


def test_wrong_elements_keep_the_shape_and_ignore_an_infinite_bound() -> None:
    mask = wrong_elements(torch.tensor([[INF, 1.0]]), torch.tensor([[5.0, 1.0]]), Tolerance(1.0, 1.0))
    assert mask.tolist() == [[True, False]]


def test_reduction_size_is_the_longest_axis_or_the_share_of_an_output() -> None:
    matrix = torch.empty(4, 300)
    assert reduction_size([matrix, torch.empty(300, 5)], torch.empty(4, 5)) == 300
    assert reduction_size([torch.empty(40, 50)], torch.empty(())) == 2000
    assert reduction_size([], torch.empty(3)) == 1
    assert reduction_size([torch.empty(0)], torch.empty(0)) == 1


def test_a_few_more_elements_are_told_with_their_places() -> None:
    got = X.clone()
    got.view(-1)[[3, 50, 64, 200, 4095]] += 1
    error = error_of(compare(X, got))
    assert error.position == (0, 3)
    assert [line.partition(": expected ")[0] for line in error.detail.splitlines()] == [
        "At [0, 50]",
        "At [1, 0]",
        "At [63, 63]",
    ]
    got = X.clone()
    got.view(-1)[7] += 1
    assert error_of(compare(X, got)).detail == ""
