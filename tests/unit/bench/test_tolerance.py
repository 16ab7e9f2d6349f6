"""How far from the expected output still passes: scales, dtypes, the float64 oracle and its cap."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.child.compare import compare
from kb_ray.bench.child.tolerance import BASE, CAP, EXACT, chunks, tolerance, tolerances, wrong_elements
from kb_ray.records import Status
from tests.unit.bench.comparing import FLOATS, INF, compared, drawn, error_of


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
    assert compared(expected, (a.to(low) @ b.to(low)).float(), oracle).status is Status.MISMATCH
    x = drawn(10_000)
    assert compared(x * 3, (x.to(low) * 3).float(), x.double() * 3).status is Status.MISMATCH


def test_double_work_done_in_float32_fails_A48() -> None:
    x = drawn(10_000, dtype=torch.float64)
    assert compared(x.exp(), x.float().exp().double(), x.exp()).status is Status.MISMATCH


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_another_order_of_summation_passes_B02(dtype: torch.dtype) -> None:
    x = drawn(64, 4096, dtype=dtype)
    expected, oracle = x.sum(1), x.double().sum(1)
    wider = torch.float64 if dtype is torch.float64 else torch.float32
    sequential = torch.zeros(64, dtype=wider)
    for column in x.to(wider).unbind(1):
        sequential = sequential + column
    assert compared(expected, sequential.to(dtype), oracle, [x]).status is Status.OK


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_fused_kernel_more_exact_than_the_reference_passes_B02(dtype: torch.dtype) -> None:
    x = drawn(128, 512, dtype=dtype)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 1.7 - x.mean(1, keepdim=True)
        return y * torch.sigmoid(y) + x

    assert compared(program(x), program(x.float()).to(dtype), program(x.double())).status is Status.OK


def truncated_to_tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_tf32_passes_beside_a_tf32_reference_and_fails_beside_an_exact_one_B01() -> None:
    a, b = drawn(64, 512), drawn(512, 64, seed=2)
    oracle = a.double() @ b.double()
    coarse = truncated_to_tf32(a) @ truncated_to_tf32(b)
    rounded = truncated_to_tf32(a * (1 + 2**-12)) @ truncated_to_tf32(b * (1 + 2**-12))
    assert compared(coarse, rounded, oracle).status is Status.OK
    comparison = compared(a @ b, coarse, oracle)
    assert comparison.status is Status.MISMATCH
    assert (error_of(comparison).pattern or "").startswith("precision: ")
    assert "PRECISION" in error_of(comparison).message


def test_bits_cut_off_pass_beside_bits_rounded_where_tf32_is_allowed_and_not_elsewhere_B01() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.rand(64, 512, generator=draw) + 2, torch.rand(512, 64, generator=draw) + 2)

    def cut(values: torch.Tensor, add: int) -> torch.Tensor:
        return ((values.view(torch.int32) + add) & ~0x1FFF).view(torch.float32)

    rounded, truncated = cut(x, 0x1000) @ cut(y, 0x1000), cut(x, 0) @ cut(y, 0)
    exact = x.double() @ y.double()
    allowed = tolerance(rounded, exact, 512, tf32=True)
    assert not wrong_elements(rounded, truncated, allowed).any()
    assert wrong_elements(rounded, truncated, tolerance(rounded, exact, 512)).any()
    assert wrong_elements(rounded, 1.005 * rounded, allowed).any()


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
    assert compared([x, x * 1], [x, x + 1e-3], oracle=x.double()).status is Status.MISMATCH
    assert compared([x, x * 1], [x, x.clone()], oracle="nothing").status is Status.OK


def test_an_oracle_may_be_given_as_a_list_in_order_of_the_outputs() -> None:
    x = drawn(1000, dtype=torch.bfloat16)
    expected, off = {"b": x, "a": (x * 1,)}, x + 0.03
    coarse = x.double() + 0.02
    assert compared(expected, {"b": x, "a": (off,)}, [x.double(), x.double()]).status is Status.MISMATCH
    assert compared(expected, {"b": x, "a": (off,)}, [x.double(), coarse]).status is Status.OK
    assert compared(expected, {"b": x, "a": (off,)}, [coarse, x.double()]).status is Status.MISMATCH


def test_tolerances_are_those_of_each_output_and_are_computed_once() -> None:
    x, count = drawn(100), torch.arange(5)
    oracle = [x.double() + 1e-3, count.double()]
    allowed = tolerances([x, count], oracle, [drawn(7, 4096)])
    assert allowed == [tolerance(x, oracle[0], 4096), EXACT]
    assert compare((x, count), (x + 1.2 * allowed[0].atol, count), allowed).status is Status.MISMATCH
    assert compare((x, count), (x + 0.8 * allowed[0].atol, count), allowed).status is Status.OK
    assert tolerances([x, count], oracle[:1]) == tolerances([x, count])
    with pytest.raises(ValueError, match="1 tolerances for 2 tensors"):
        compare((x, count), (x, count), allowed[:1])


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_intermediates_are_told_as_precision_and_other_mistakes_are_not_B01_B02(low: torch.dtype) -> None:
    a, b = drawn(64, 512), drawn(512, 64, seed=2)
    comparison = compared(a @ b, (a.to(low) @ b.to(low)).float(), a.double() @ b.double(), [a, b])
    assert comparison.status is Status.MISMATCH
    assert (error_of(comparison).pattern or "").startswith("precision: ")
    for wrong in (a[:, :-16] @ b[:-16], a @ b + 1, (a @ b).t().contiguous(), a @ b * 1.1):
        assert "precision" not in (error_of(compare(a @ b, wrong)).pattern or "")


def test_no_piece_of_a_large_tensor_is_larger_than_a_chunk() -> None:
    large = torch.zeros(1).expand(3, 1 << 20).contiguous()
    assert [len(part) for part, _ in chunks(large, large)] == [1 << 20] * 3


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
