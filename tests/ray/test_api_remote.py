"""`.remote(...)` of the Python API on a real local Ray."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ray

from kb_ray.bench import api, front
from kb_ray.bench.api import benchmark_batch, benchmark_kernelbench, benchmark_triton_kernel
from kb_ray.records import Status

REFERENCE = "def reference_impl(x):\n    return x + 1\n"
PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(24)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    add_one[(1,)](x, out, x.numel(), BLOCK=32)
    return out
"""
WRONG = KERNEL.replace("x + 1,", "x + 2,")
FEW = {"n_correctness": 2, "n_trials": 3}


def forget_fronts() -> None:
    for actor in front.fronts.values():
        ray.kill(actor, no_restart=True)
    front.fronts.clear()


@pytest.fixture(scope="module", autouse=True)
def _front_ends_with_the_module(ray_cluster: Any) -> Iterator[None]:
    yield
    forget_fronts()


def test_remote_calls_return_references_to_the_same_mapping() -> None:
    shapes = {"x": {"shape": [24], "dtype": "float32"}}
    right = benchmark_triton_kernel.remote(KERNEL, REFERENCE, shapes, **FEW)
    wrong = benchmark_kernelbench.remote(WRONG, PROBLEM, **FEW)
    assert isinstance(right, ray.ObjectRef)
    assert [ray.get(result)["status"] for result in (right, wrong)] == ["ok", "mismatch"]


def test_a_remote_batch_keeps_its_order() -> None:
    codes = [KERNEL, WRONG, "no code (", KERNEL]
    requests = [{"kernel_code": code, "problem_code": PROBLEM, **FEW} for code in codes]
    results = ray.get(benchmark_batch.remote(requests))
    assert [result["status"] for result in results] == ["ok", "mismatch", "syntax_error", "ok"]


def test_tasks_of_the_same_job_share_one_pool() -> None:
    @ray.remote(num_cpus=0)
    def evaluate() -> str:
        return str(ray.get(benchmark_kernelbench.remote(KERNEL, PROBLEM, **FEW))["status"])

    assert ray.get([evaluate.remote() for _ in range(2)]) == ["ok", "ok"]
    assert ray.get(benchmark_kernelbench.remote(KERNEL, PROBLEM, **FEW))["status"] == "ok"


def test_the_cluster_gives_whole_verdicts_too() -> None:
    request = benchmark_kernelbench.request(WRONG, PROBLEM, **FEW)
    verdict = api.evaluate_on_ray(request)
    assert (verdict.status, verdict.env.device) == (Status.MISMATCH, "cpu")


def test_threads_that_begin_together_hold_one_front(ray_cluster: Any) -> None:
    forget_fronts()
    request = benchmark_triton_kernel.request("def", REFERENCE, {"x": {"shape": [24], "dtype": "float32"}}, **FEW)
    together = threading.Barrier(8)

    def ask(_: int) -> Status:
        together.wait()
        return api.evaluate_on_ray(request).status

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {Status.SYNTAX_ERROR}
    # Handles that were made and forgotten would have ended the actor.
    gc.collect()
    assert len(front.fronts) == 1
    assert api.evaluate_on_ray(request).status is Status.SYNTAX_ERROR


def test_where_ray_fails_there_is_no_verdict_and_no_traceback(ray_cluster: Any) -> None:
    request = benchmark_triton_kernel.request("def", REFERENCE, {"x": {"shape": [24], "dtype": "float32"}}, **FEW)
    ray.kill(front.front(), no_restart=True)
    verdict = api.evaluate_on_ray(request)
    assert verdict.status is Status.INFRA_ERROR
    assert verdict.error is not None
    assert "\n" not in verdict.error.message
    forget_fronts()
