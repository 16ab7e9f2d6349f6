"""The functions of the Python API, called directly, with a real Evaluator on the CPU."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kb_ray.bench import api
from kb_ray.bench.api import answer, benchmark_batch, benchmark_kernelbench, benchmark_triton_kernel
from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import ErrorDetail, Stage, Status, Timing, Verdict

REFERENCE = "import torch\n\ndef reference_impl(x, y):\n    return torch.relu(x + y)\n"
SHAPES = {"x": {"shape": [32], "dtype": "float32"}, "y": {"shape": [32], "dtype": "float32"}}
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y)


def get_inputs():
    return [torch.randn(32), torch.randn(32)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_relu(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    add_relu[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out


BLOCK = 16
"""
WRONG = KERNEL.replace("tl.maximum(total, 0.0)", "total")
FEW = {"n_correctness": 2, "n_trials": 3}


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="module", autouse=True)
def _evaluator_ends_with_the_module() -> Iterator[None]:
    yield
    for worker in api._local.values():
        worker.stop()
    api._local.clear()


def test_the_functions_take_the_arguments_that_the_first_document_gives_them() -> None:
    def names(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    counted = ["n_correctness", "n_trials", "kernel_name"]
    assert names(benchmark_triton_kernel) == ["kernel_code", "reference_torch_code", "input_shapes", *counted, "policy"]
    assert names(benchmark_kernelbench) == ["kernel_code", "problem_code", *counted, "policy"]
    defaults = inspect.signature(benchmark_kernelbench).parameters
    assert [defaults[name].default for name in counted] == [5, 50, None]


def test_a_right_kernel_answers_with_the_verdict_and_the_first_documents_names() -> None:
    result = benchmark_triton_kernel(KERNEL, REFERENCE, SHAPES, **FEW)
    assert result.keys() >= Verdict.model_fields.keys()
    assert (result["status"], result["correctness"], result["error"]) == ("ok", True, None), result["error"]
    assert (result["fast_0"], result["fast_1"], result["speedup"]) == (True, None, None), "nothing is timed"
    assert result["tests_passed"] == result["tests_total"] == 2


def test_a_wrong_kernel_answers_with_one_line_and_its_structure() -> None:
    result = benchmark_kernelbench(WRONG, PROBLEM, kernel_name="no relu", **FEW)
    assert (result["status"], result["correctness"], result["fast_0"]) == ("mismatch", False, False)
    assert result["error"].startswith("CORRECTNESS ERROR: ")
    assert result["error_detail"]["max_abs_error"] > 0


def test_a_batch_answers_in_the_order_of_its_requests() -> None:
    wanted = [KERNEL, WRONG, "def nothing(:", KERNEL]
    requests = [{"kernel_code": code, "problem_code": PROBLEM, **FEW} for code in wanted]
    requests[3] = {"kernel_code": KERNEL, "reference_torch_code": REFERENCE, "input_shapes": SHAPES, **FEW}
    statuses = [result["status"] for result in benchmark_batch(requests)]
    assert statuses == ["ok", "mismatch", "syntax_error", "ok"]


def test_a_killed_judge_costs_time_and_not_the_verdict() -> None:
    benchmark_kernelbench(KERNEL, PROBLEM, **FEW)
    [worker] = api._local.values()
    before = worker.stats()

    def kill() -> None:
        while not worker.stats().busy:
            time.sleep(0.001)
        os.kill(before.pids["judge"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    result = benchmark_kernelbench(KERNEL, PROBLEM, n_correctness=50)
    killer.join()
    assert result["status"] == "ok", result["error"]
    assert worker.stats().restarts == before.restarts + 1


@pytest.mark.parametrize(
    ("reference", "shapes", "what"),
    [
        ("def reference_impl(x:", SHAPES, "no valid Python"),
        ("def forward(x):\n    return x\n", SHAPES, "neither reference_impl"),
        (REFERENCE, {"x": {"shape": "wide"}}, "shape must be"),
        (REFERENCE, None, "neither input_shapes nor get_inputs"),
    ],
)
def test_a_reference_that_cannot_be_used_is_refused_at_once(reference: str, shapes: Any, what: str) -> None:
    with pytest.raises(TaskError, match=what):
        benchmark_triton_kernel.remote(KERNEL, reference, shapes)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"n_correctness": 0}, "n_correctness"),
        ({"n_trials": 2}, "n_trials"),
        ({"torch_ops": "sometimes"}, "torch_ops"),
        ({"time_out": 3}, "time_out"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        benchmark_triton_kernel(KERNEL, REFERENCE, **{"input_shapes": SHAPES, **arguments})


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"kernel_code": KERNEL}, ConfigError),
        ({"kernel_code": KERNEL, "problem_code": "x = 1"}, TaskError),
    ],
)
def test_a_batch_names_the_request_that_cannot_be_used(bad: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="request 1 of the batch"):
        benchmark_batch([{"kernel_code": KERNEL, "problem_code": PROBLEM}, bad])


def test_a_timed_verdict_keeps_its_numbers() -> None:
    times = Timing(median_ms=1.0, trimmed_mean_ms=1.0, std_ms=0.1, n=50)
    verdict = Verdict.of(Status.OK, Stage.TIMING, speedup=2.5, kernel_time=times, reference_time=times)
    result = answer(verdict)
    assert [result[name] for name in ("correctness", "speedup", "fast_0", "fast_1", "fast_2")] == [
        True, 2.5, True, True, True,
    ]  # fmt: skip


def test_the_error_is_a_line_of_text() -> None:
    error = ErrorDetail(category="TIMEOUT", message="load took over 60 s")
    result = answer(Verdict.of(Status.TIMEOUT, Stage.LOAD, error=error))
    assert result["error"] == "TIMEOUT: load took over 60 s"
    assert result["error_detail"]["category"] == "TIMEOUT"


def test_the_policy_of_a_request_is_given_by_keyword() -> None:
    policy = {"timeout_s": 7.0, "torch_ops": "forbid", "generalise": "off", "baseline": "compile", "tf32": True}
    request = benchmark_kernelbench.request(KERNEL, PROBLEM, **policy)
    assert request.settings.model_dump().items() >= policy.items()
