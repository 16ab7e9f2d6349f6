"""What counts as the expected output, what does not, and how a difference is described."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.child.compare import compare
from kb_ray.bench.child.tolerance import EXACT, tolerance
from kb_ray.bench.child.tree import DTYPES, Attributes
from kb_ray.records import Status
from tests.unit.bench.comparing import FLOATS, INF, NAN, drawn, error_of

VALUES: list[Any] = [
    drawn(3, 4),
    torch.tensor(2.5),
    torch.empty(0, 3),
    torch.arange(4),
    torch.tensor([True, False]),
    (drawn(2), [drawn(3), None]),
    {"loss": drawn(2), "n": 3},
    {1: drawn(2)},
    Attributes(a=drawn(2)),
    None,
    3,
    2.5,
    True,
    "text",
    1 + 2j,
    drawn(4).to(torch.complex64),
    torch.float32,
    [],
    (drawn(2, 2),),
    torch.tensor([NAN, INF, -INF, 1.0]),
    NAN,
]


@pytest.mark.parametrize("i", range(len(VALUES)))
def test_a_value_equals_a_copy_of_itself_and_none_of_the_others_B09(i: int) -> None:
    copy = torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, VALUES[i])
    assert compare(VALUES[i], copy).status is Status.OK
    assert compare(VALUES[i], copy).error is None
    others = [j for j, other in enumerate(VALUES) if j != i and compare(VALUES[i], other).status is Status.OK]
    assert others == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (drawn(2), (drawn(2),)),
        ((drawn(2),), drawn(2)),
        ((drawn(2), drawn(2)), (drawn(2),)),
        ((drawn(2),), (drawn(2), drawn(2))),
        ({"a": drawn(2)}, {"b": drawn(2)}),
        ({"a": drawn(2)}, {"a": drawn(2), "b": 1}),
        ({1: 2}, {"1": 2}),
        (Attributes(a=1), {"a": 1}),
        (torch.tensor(2.5), 2.5),
        (2.5, torch.tensor(2.5)),
        (1, True),
        (True, 1),
        (None, 0),
        (drawn(2), None),
        (drawn(2), object()),
        (drawn(2), iter([drawn(2)])),
        ((drawn(2), (1, 2)), (drawn(2), [1, 2])),
        ("2", 2),
    ],
)
def test_another_structure_is_told_as_such_A44_A52(expected: object, got: object) -> None:
    comparison = compare(expected, got)
    assert comparison.status is Status.WRONG_STRUCTURE
    assert error_of(comparison).output == (
        "out[1]"
        if isinstance(expected, tuple) and len(expected) == 2 and isinstance(got, tuple) and len(got) == 2
        else "out"
    )


def test_list_and_tuple_of_outputs_are_the_same_at_the_top_only() -> None:
    x = drawn(3)
    assert compare((x, 1), [x, 1]).status is Status.OK
    assert compare([[x]], [(x,)]).status is Status.WRONG_STRUCTURE


@pytest.mark.parametrize(
    "shapes", [((4, 1), (1, 4)), ((4,), ()), ((), (1,)), ((2, 3), (6,)), ((0,), (0, 1)), ((1, 4), (4,))]
)
def test_shapes_must_agree_exactly_A45_B15(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    expected, got = (torch.zeros(shape) for shape in shapes)
    comparison = compare({"y": expected}, {"y": got})
    assert comparison.status is Status.WRONG_SHAPE
    assert error_of(comparison).output == "out['y']"
    assert error_of(comparison).expected == str(shapes[0])
    assert error_of(comparison).got == str(shapes[1])


@pytest.mark.parametrize(
    "dtypes",
    [
        ("float32", "float16"),
        ("float32", "float64"),
        ("float64", "int64"),
        ("int64", "int32"),
        ("bool", "uint8"),
        ("bfloat16", "float16"),
        ("complex64", "float32"),
    ],
)
def test_dtypes_must_agree_exactly_A47_B11(dtypes: tuple[str, str]) -> None:
    expected, got = (torch.ones(3, dtype=DTYPES[name]) for name in dtypes)
    comparison = compare(expected, got)
    assert comparison.status is Status.WRONG_DTYPE
    assert (error_of(comparison).expected, error_of(comparison).got) == dtypes


def test_the_earliest_stage_is_told_whatever_the_order_of_outputs() -> None:
    wrong_value, wrong_dtype = drawn(3) + 1, drawn(3).double()
    expected = (drawn(3), drawn(3), drawn(3))
    assert compare(expected, (wrong_value, wrong_dtype, drawn(4))).status is Status.WRONG_SHAPE
    assert compare(expected, (wrong_value, wrong_dtype, drawn(3))).status is Status.WRONG_DTYPE
    assert compare(expected, (wrong_value, wrong_dtype, None)).status is Status.WRONG_STRUCTURE


@pytest.mark.parametrize(("have", "right"), [(10_000.0, True), (10_000, True), (10_001, False), (10_001.0, False)])
def test_a_whole_number_is_exact_whatever_type_stands_for_it(have: float, right: bool) -> None:
    assert (compare(10_000, have).error is None) == right
    assert compare(10_000.0, have).error is None, "a float is read off a tensor as a rule"


@given(st.integers(0, 3), st.integers(0, 23))
@settings(deadline=None, max_examples=60)
def test_corrupting_any_element_of_any_output_is_seen_and_located_A36_A53(output: int, element: int) -> None:
    expected = [drawn(2, 3, 4, seed=i) for i in range(4)]
    got = [tensor.clone() for tensor in expected]
    got[output].view(-1)[element] += 0.01
    comparison = compare(expected, got)
    assert comparison.status is Status.MISMATCH
    error = error_of(comparison)
    assert error.output == f"out[{output}]"
    assert error.position == (element // 12, element // 4 % 3, element % 4)
    assert (error.wrong_elements, error.total_elements) == (1, 24)
    assert error.max_abs_error == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool]
)
def test_integers_and_bools_are_exact(dtype: torch.dtype) -> None:
    expected = torch.tensor([0, 1, 1, 0] * 500).to(dtype)
    assert tolerance(expected) == EXACT
    assert compare(expected, expected.clone()).status is Status.OK
    got = expected.clone()
    got[7] = 1
    comparison = compare(expected, got)
    assert comparison.status is Status.MISMATCH
    assert error_of(comparison).position == (7,)


def test_int64_beyond_double_precision_is_exact() -> None:
    big = torch.tensor([2**62, 2**62])
    assert compare(big, big + 1).status is Status.MISMATCH


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_nonfinite_element_never_passes_where_none_is_expected_A46(value: float, dtype: torch.dtype) -> None:
    expected = drawn(100, dtype=dtype)
    got = expected.clone()
    got[42] = value
    comparison = compare(expected, got)
    assert comparison.status is Status.NONFINITE
    assert error_of(comparison).position == (42,)
    assert compare(got, expected).status is Status.MISMATCH
    assert compare(got, got.clone()).status is Status.OK
    assert compare(got, torch.full_like(got, value)).status is not Status.OK


def test_infinities_and_nan_must_agree_in_place_and_sign_B14() -> None:
    expected = torch.tensor([INF, -INF, NAN, 1.0])
    assert compare(expected, expected.clone()).status is Status.OK
    for at, value in [(0, -INF), (1, INF), (0, NAN), (2, INF), (2, 1.0), (0, 3e38)]:
        got = expected.clone()
        got[at] = value
        assert compare(expected, got).status in (Status.NONFINITE, Status.MISMATCH)
    assert compare(expected, torch.full((4,), NAN)).status is Status.NONFINITE


def test_complex_outputs_are_compared_by_distance() -> None:
    x = torch.complex(drawn(100), drawn(100, seed=2))
    assert compare(x, x * (1 + 1e-6j)).status is Status.OK
    assert compare(x, x * (1 + 1e-2j)).status is Status.MISMATCH
    assert compare(x, x.conj().resolve_conj()).status is Status.MISMATCH
    assert compare(x, x * complex(NAN, 0)).status is Status.NONFINITE


def test_numbers_are_compared_as_numbers() -> None:
    assert compare(2.0, 2).status is Status.OK
    assert compare(2.0, 2.0001).status is Status.OK
    assert compare(2.0, 2.01).status is Status.MISMATCH
    assert compare(2, 3).status is Status.MISMATCH
    assert compare(2.0, NAN).status is Status.NONFINITE
    assert compare(INF, 1e300).status is Status.MISMATCH
    assert compare(1.0, 10**400).status is Status.MISMATCH
    assert compare("a", "b").status is Status.MISMATCH
    assert error_of(compare({"n": 2}, {"n": 3})).output == "out['n']"
    assert error_of(compare(Attributes(n=2), SimpleNamespace(n=3))).output == "out.n"
