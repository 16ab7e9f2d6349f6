"""Tasks and kernels that the benchmarks evaluate: elementwise, distinct by name, right and wrong in every way."""

from __future__ import annotations

from kb_ray.records import Task, TensorSpec

TINY, SMALL, GIANT, MEDIUM = (16, 16), (4096, 1024), (4096, 393216), (8192, 8192)

_KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def NAME(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x + y, 0.0), mask=mask)


def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    NAME[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
"""

_UNARY = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def NAME(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        NAME[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
"""

_MODULE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""


def add_relu(shape: tuple[int, int]) -> Task:
    """`relu(x + y)` on two float32 matrices."""
    return Task(
        task_id=f"bench/add_relu_{shape[0]}x{shape[1]}", source="bench", name="add_relu", style="function",
        entry_point="reference_impl",
        reference_code="import torch\n\n\ndef reference_impl(x, y):\n    return torch.relu(x + y)\n",
        input_shapes={name: TensorSpec(shape=shape) for name in ("x", "y")},
    )  # fmt: skip


def relu_module(shape: tuple[int, int]) -> Task:
    """`relu(x)` in KernelBench's form, inputs drawn by `torch.rand`."""
    code = _MODULE.replace("ROWS", str(shape[0])).replace("COLUMNS", str(shape[1]))
    return Task(
        task_id=f"bench/relu_{shape[0]}x{shape[1]}", source="bench", name="relu", style="module",
        entry_point="Model", reference_code=code,
    )  # fmt: skip


def right(number: int) -> str:
    """A correct kernel for `add_relu`; another source for every number."""
    return _KERNEL.replace("NAME", f"add_relu_kernel_{number}")


def right_module(number: int) -> str:
    """A correct `ModelNew` for `relu_module`."""
    return _UNARY.replace("NAME", f"relu_kernel_{number}")


def own_copy(shape: tuple[int, int]) -> Task:
    """A task whose reference is a Triton kernel: `right` against it should come out at a ratio of 1."""
    code = _KERNEL.replace("NAME", "reference_kernel").replace("triton_kernel_wrapper", "reference_impl")
    return add_relu(shape).model_copy(update={"reference_code": code, "task_id": "bench/own_copy"})


def first_doing(statement: str, number: int) -> str:
    """`right` whose wrapper runs a statement before anything else."""
    return right(number).replace("    out = torch.empty_like(x)\n", f"    {statement}\n    out = torch.empty_like(x)\n")


def out_of_bounds(number: int) -> str:
    return right(number).replace("out_ptr + offsets, tl", "out_ptr + offsets + 2**33, tl")
