"""One real evaluator on the Triton interpreter for the whole test session, and small candidates for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Task, TensorSpec, Verdict

_ids = itertools.count()

ADD_RELU = Task(
    task_id="folder/add_relu",
    source="folder",
    name="add_relu",
    style="function",
    entry_point="reference_impl",
    reference_code="import torch\n\n\ndef reference_impl(x, y):\n    return torch.relu(x + y)\n",
    input_shapes={"x": TensorSpec(shape=(100, 33)), "y": TensorSpec(shape=(100, 33))},
)

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x + y, 0.0), mask=mask)


def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    add_relu_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
"""


def changed(old: str, new: str, source: str = KERNEL) -> str:
    """`source` with `old` replaced, which must be there."""
    assert old in source
    return source.replace(old, new)


def first(statement: str, source: str = KERNEL) -> str:
    """`source` whose wrapper runs `statement` before anything else."""
    return changed("    out = torch.empty_like(x)\n", f"    {statement}\n    out = torch.empty_like(x)\n", source)


@pytest.fixture(scope="session")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator(device="cpu", concurrency=2, name="tests")
    evaluator.start()
    yield evaluator
    evaluator.stop()


Verify = Callable[..., Verdict]


@pytest.fixture(scope="session")
def verify(evaluator: Evaluator) -> Verify:
    """Verdict of a candidate's source against a task (add_relu unless told)."""

    def verify(code: str, task: Task = ADD_RELU, **settings: float) -> Verdict:
        wanted = BenchSettings(**({"n_correctness": 3, "timeout_s": 30.0} | settings))
        request = BenchRequest(request_id=f"t{next(_ids)}", task=task, kernel_code=code, settings=wanted)
        return evaluator.evaluate(request)

    return verify
