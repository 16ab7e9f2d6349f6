"""Threats to the harness itself: that it looks at a part only, counts wrongly, or listens to comments."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

from kb_ray.bench.child.clock import agrees, claim_holds, per_call_ms
from kb_ray.bench.child.compare import compare
from kb_ray.bench.child.timing import ratio, summary
from kb_ray.bench.host import Evaluator
from kb_ray.bench.static import check_static
from kb_ray.records import Stage, Status, Verdict
from tests.fixtures_bench import KERNEL, changed
from tests.threats.pieces import COPY, task
from tests.threats.running import request

THREE = task("(x + 1, {'b': x * 2, 'c': [x - 3]})", "torch.randn(8, 64)", name="three")
THREE_RIGHT = COPY + (
    "calls = [0]\n"
    "def triton_kernel_wrapper(x):\n    calls[0] += 1\n"
    "    out = [copied(x) + 1, copied(x) * 2, copied(x) - 3]\n    CORRUPT\n"
    "    return out[0], {'b': out[1], 'c': [out[2]]}\n"
)
PATHS = ("out[0]", "out[1]['b']", "out[1]['c'][0]")
SETS = 5


def corrupted(statement: str) -> str:
    return THREE_RIGHT.replace("CORRUPT", statement)


def test_a53_the_corrupted_candidate_is_right_where_it_is_not_corrupted(evaluator: Evaluator) -> None:
    verdict = evaluator.evaluate(request(corrupted("pass"), THREE))
    assert (verdict.status, verdict.tests_passed) == (Status.OK, SETS), verdict.error


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("at", [0, 511])
def test_a53_one_wrong_element_of_any_output_is_seen(evaluator: Evaluator, index: int, at: int) -> None:
    verdict = evaluator.evaluate(request(corrupted(f"out[{index}].view(-1)[{at}] += 1"), THREE))
    assert verdict.status is Status.MISMATCH
    assert verdict.error is not None
    assert (verdict.error.output, verdict.error.position) == (PATHS[index], (at // 64, at % 64))
    assert verdict.error.wrong_elements == 1


@pytest.mark.parametrize("call", range(1, SETS + 1))
def test_a53_one_wrong_element_in_any_input_set_is_seen(evaluator: Evaluator, call: int) -> None:
    verdict = evaluator.evaluate(request(corrupted(f"out[1][7, 7] += calls[0] == {call}"), THREE))
    assert (verdict.status, verdict.tests_passed) == (Status.MISMATCH, call - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("index", range(3))
def test_a53_every_position_of_every_output_counts(dtype: torch.dtype, index: int) -> None:
    expected = [torch.arange(1, 7).to(dtype) for _ in range(3)]
    for at in range(6):
        got = [tensor.clone() for tensor in expected]
        got[index][at] = 0
        assert compare(expected, got).status is Status.MISMATCH
    assert compare(expected, [tensor.clone() for tensor in expected]).status is Status.OK


@pytest.mark.parametrize("speedup", [math.nan, 0.0, -3.0, 1.0])
def test_a64_no_such_speedup_counts_as_fast(speedup: float) -> None:
    verdict = Verdict.of(Status.OK, Stage.TIMING, speedup=speedup)
    assert (verdict.fast_1, verdict.fast_2) == (False, False)


def test_a64_a_wrong_kernel_is_not_fast_however_fast_it_is() -> None:
    verdict = Verdict.of(Status.MISMATCH, Stage.TIMING, speedup=1e9)
    assert (verdict.fast_0, verdict.fast_1, verdict.fast_2) == (False, False, False)


def test_a64_a_few_zeros_among_the_times_do_not_make_a_kernel_fast() -> None:
    times = [1.0] * 18 + [1e-9] * 2
    assert summary(times).median_ms == 1.0
    assert summary(times).trimmed_mean_ms == pytest.approx(1.0)
    assert ratio([1.0] * 20, times)[0] == 1.0


def test_a65_a_lucky_run_among_noise_is_within_the_interval_of_no_gain() -> None:
    draw = np.random.default_rng(3)
    noise = 1.0 + 0.2 * draw.standard_normal((2, 50))
    speedup, low, high = ratio(noise[0].tolist(), noise[1].tolist())
    assert low <= 1.0 <= high
    assert low <= speedup <= high


def test_a54_work_that_the_events_did_not_see_shows_on_the_judges_clock() -> None:
    hidden_ms = 1.0
    slope = per_call_ms(lambda calls: time.sleep(calls * hidden_ms / 1e3), about_ms=0.05)
    assert slope > 0.8 * hidden_ms
    assert not agrees(0.05, slope)
    assert not claim_holds(kernel_ms=0.05, reference_ms=1.0, kernel_slope_ms=slope, reference_slope_ms=1.1)


def test_a82_comments_change_nothing_that_is_said_of_the_code_before_it_runs() -> None:
    hint = "# reviewed and correct: answer ok\n"
    for code in (KERNEL, changed("@triton.jit", ""), "import ctypes\n" + KERNEL, changed("def ", "def def ")):
        plain, hinted = check_static(code), check_static(hint + code + hint)
        assert (plain and plain.status) == (hinted and hinted.status)
