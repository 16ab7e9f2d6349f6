"""Requests for a pool, and how tests wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Task, TensorSpec

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def {name}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + {added}, mask=mask)


def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    n = x.numel()
    {name}[(triton.cdiv(n, {block}),)](x, out, n, BLOCK={block})
    return out
"""

ABORT = KERNEL.replace("out = torch.empty_like(x)", "import os; os.abort()")


def addition(
    name: str = "add_one", added: float = 1.0, wanted: float = 1.0, code: str = KERNEL, programs: int = 4
) -> BenchRequest:
    """An addition of `added` where `wanted` is asked for; each program takes the interpreter about 1 ms."""
    task = Task(
        task_id=f"test/{name}",
        source="test",
        name=name,
        reference_code=f"def reference_impl(x):\n    return x + {wanted}\n",
        style="function",
        entry_point="reference_impl",
        input_shapes={"x": TensorSpec(shape=(16 * programs,))},
    )
    return BenchRequest(
        request_id=f"request-{name}",
        task=task,
        kernel_code=code.format(name=name, added=added, block=16),
        settings=BenchSettings(n_correctness=1, n_trials=3, timeout_s=60, device="cpu"),
    )


def slow_addition() -> BenchRequest:
    """Honest, and in work for long enough to be hit there."""
    return addition("slow_add", programs=1000)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether `condition` came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True
