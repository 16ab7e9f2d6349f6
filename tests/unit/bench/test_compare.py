"""What counts as the expected output, what does not, and how a difference is described."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.child.compare import Comparison, compare
from kb_ray.bench.child.tolerance import BASE, CAP, EXACT, Tolerance, reduction_size, tolerance, wrong_elements
from kb_ray.bench.child.tree import DTYPES, Attributes
from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import ErrorDetail, Status

# As in the judge; several threads on a busy machine wait for each other longer than these tests take.
torch.set_num_threads(1)

INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def error_of(comparison: Comparison) -> ErrorDetail:
    assert comparison.error is not None
    assert comparison.error.category == CATEGORY_BY_STATUS[comparison.status]
    return comparison.error


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


def test_zeros_and_constants_do_not_pass_for_tiny_outputs_A32_B03() -> None:
    softmax = torch.softmax(drawn(8, 50_000), dim=1)
    for got in (torch.zeros_like(softmax), torch.full_like(softmax, softmax.mean().item())):
        assert compare(softmax, got).status is Status.MISMATCH
    tiny = drawn(1000) * 1e-20
    assert compare(tiny, torch.zeros_like(tiny)).status is Status.MISMATCH
    assert compare(tiny, tiny * (1 + 1e-6)).status is Status.OK


def test_elements_near_zero_are_measured_by_the_scale_of_the_output_B03() -> None:
    expected = drawn(1000)
    expected[3] = 1e-9
    got = expected.clone()
    got[3] = -1e-6
    assert compare(expected, got).status is Status.OK


def test_a_few_huge_elements_do_not_excuse_the_others_A35() -> None:
    expected = drawn(1_000_000)
    expected[17] = 1e4
    got = expected.clone()
    got[500_000:] *= 0.9
    assert compare(expected, got).status is Status.MISMATCH


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16])
def test_float32_work_done_in_a_narrower_dtype_fails_A48(low: torch.dtype) -> None:
    a, b = drawn(64, 256), drawn(256, 64, seed=2)
    expected, oracle = a @ b, a.double() @ b.double()
    assert compare(expected, (a.to(low) @ b.to(low)).float(), oracle).status is Status.MISMATCH
    x = drawn(10_000)
    assert compare(x * 3, (x.to(low) * 3).float(), x.double() * 3).status is Status.MISMATCH


def test_double_work_done_in_float32_fails_A48() -> None:
    x = drawn(10_000, dtype=torch.float64)
    assert compare(x.exp(), x.float().exp().double(), x.exp()).status is Status.MISMATCH


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_another_order_of_summation_passes_B02(dtype: torch.dtype) -> None:
    x = drawn(64, 4096, dtype=dtype)
    expected, oracle = x.sum(1), x.double().sum(1)
    wider = torch.float64 if dtype is torch.float64 else torch.float32
    sequential = torch.zeros(64, dtype=wider)
    for column in x.to(wider).unbind(1):
        sequential = sequential + column
    assert compare(expected, sequential.to(dtype), oracle, [x]).status is Status.OK


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_fused_kernel_more_exact_than_the_reference_passes_B02(dtype: torch.dtype) -> None:
    x = drawn(128, 512, dtype=dtype)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 1.7 - x.mean(1, keepdim=True)
        return y * torch.sigmoid(y) + x

    assert compare(program(x), program(x.float()).to(dtype), program(x.double())).status is Status.OK


def truncated_to_tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_tf32_passes_beside_a_tf32_reference_and_fails_beside_an_exact_one_B01() -> None:
    a, b = drawn(64, 512), drawn(512, 64, seed=2)
    oracle = a.double() @ b.double()
    coarse = truncated_to_tf32(a) @ truncated_to_tf32(b)
    rounded = truncated_to_tf32(a * (1 + 2**-12)) @ truncated_to_tf32(b * (1 + 2**-12))
    assert compare(coarse, rounded, oracle).status is Status.OK
    comparison = compare(a @ b, coarse, oracle)
    assert comparison.status is Status.MISMATCH
    assert "precision" in (error_of(comparison).pattern or "")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_no_oracle_loosens_beyond_the_cap(dtype: torch.dtype) -> None:
    expected = drawn(1000, dtype=dtype)
    scale = expected.double().abs().mean().item()
    allowed = tolerance(expected, torch.full((1000,), 1e9, dtype=torch.float64), reduction=10**12)
    assert allowed.atol == pytest.approx(CAP[dtype] * scale, rel=1e-3)
    assert allowed.rtol == BASE[dtype]
    unfit = torch.zeros(7, dtype=torch.float64)
    assert tolerance(expected, unfit) == tolerance(expected)
    assert tolerance(expected).atol == pytest.approx(BASE[dtype] * scale, rel=0.01)


def test_an_oracle_of_another_structure_is_left_out() -> None:
    x = drawn(100)
    assert compare([x, x * 1], [x, x + 1e-3], oracle=x.double()).status is Status.MISMATCH
    assert compare([x, x * 1], [x, x.clone()], oracle="nothing").status is Status.OK


def test_an_oracle_may_be_given_as_a_list_in_order_of_the_outputs() -> None:
    x = drawn(1000, dtype=torch.bfloat16)
    expected, off = {"b": x, "a": (x * 1,)}, x + 0.03
    coarse = x.double() + 0.02
    assert compare(expected, {"b": x, "a": (off,)}, [x.double(), x.double()]).status is Status.MISMATCH
    assert compare(expected, {"b": x, "a": (off,)}, [x.double(), coarse]).status is Status.OK
    assert compare(expected, {"b": x, "a": (off,)}, [coarse, x.double()]).status is Status.MISMATCH


NUMBERS = st.floats(width=16)
PAIRS = st.one_of(NUMBERS.map(lambda x: (x, x)), NUMBERS.map(lambda x: (x, x * 1.004)), st.tuples(NUMBERS, NUMBERS))


@given(st.sampled_from([*FLOATS, torch.float8_e4m3fn]), st.lists(PAIRS, min_size=1, max_size=6))
@settings(deadline=None, max_examples=100)
def test_equality_always_passes_and_what_passes_is_near(dtype: torch.dtype, pairs: list[tuple[float, float]]) -> None:
    want, have = torch.tensor(pairs, dtype=torch.float64).to(dtype).unbind(1)
    assert compare(want, want.clone()).status is Status.OK
    allowed = tolerance(want)
    ok = compare(want, have).status is Status.OK
    near = [
        a == b or (a != a and b != b) or (abs(a) != INF and abs(b - a) <= allowed.atol + allowed.rtol * abs(a))
        for a, b in zip(want.double().tolist(), have.double().tolist(), strict=True)
    ]
    assert ok == all(near)


def test_chunks_do_not_change_the_answer() -> None:
    expected = drawn(3, 1_000_000)
    got = expected.clone()
    got[2, 999_999] += 1
    got[1, 7] += 1
    error = error_of(compare(expected, got))
    assert error.position == (1, 7)
    assert (error.wrong_elements, error.total_elements) == (2, 3_000_000)


def test_layouts_and_gradients_do_not_count_B12_B30() -> None:
    x = drawn(6, 4)
    assert compare(x, x.t().contiguous().t()).status is Status.OK
    assert compare(x, torch.nn.Parameter(x.clone())).status is Status.OK
    assert compare(drawn(1, 4), drawn(1, 4).expand(1, 4)).status is Status.OK
    assert compare(x.t(), x.contiguous().t() + 1).status is Status.MISMATCH


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


X = drawn(64, 64)


def without_tail(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.view(-1)[3000:] = 0
    return y


def every_eighth_off(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.view(-1)[5::8] += drawn(512, seed=9).abs() + 1
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
        (lambda x: x + 1e-3, "all elements, precision (each error is small)"),
        (lambda x: drawn(64, 64, seed=3), "all elements"),
    ],
)
def test_regularities_of_wrong_elements_are_named(change: Any, pattern: str) -> None:
    error = error_of(compare(X, change(X)))
    assert error.pattern == pattern


def test_a_matrix_written_in_the_other_order_is_seen_as_transposed() -> None:
    x = drawn(6, 10)
    assert "transposed" in (error_of(compare(x, x.t().contiguous().view(6, 10))).pattern or "")


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
