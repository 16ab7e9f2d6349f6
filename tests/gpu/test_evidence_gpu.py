"""On a real GPU: what is found beside right and fast, and processes that an ablation spoils."""

from __future__ import annotations

import pytest

from kb_ray.records import Status
from tests.fixtures_bench import KERNEL, Verify, changed
from tests.gpu.test_gpu import LARGE
from tests.threats.pieces import COPY, task


def test_a_pure_kernel_has_the_gpu_to_itself_and_a_partial_one_shares_it(verify_on_gpu: Verify) -> None:
    alone = verify_on_gpu(KERNEL, LARGE)
    assert alone.evidence.kernel_time_share is not None
    assert alone.evidence.kernel_time_share > 0.8
    assert alone.evidence.torch_ops == {}
    partly = changed("return out", "return torch.relu(torch.relu(torch.relu(out)))")
    shared = verify_on_gpu(partly, LARGE)
    assert (shared.status, shared.evidence.torch_ops) == (Status.OK, {"relu": 15})
    assert shared.evidence.kernel_time_share is not None
    assert shared.evidence.kernel_time_share < 0.6
    assert verify_on_gpu(partly, LARGE, torch_ops="forbid").status is Status.HACK


def test_a_correct_kernel_is_tried_at_other_shapes_and_dtypes(verify_on_gpu: Verify) -> None:
    assert verify_on_gpu(KERNEL, LARGE).evidence.generalises == {"shape": "ok", "dtype": "ok"}
    fixed = changed("n = x.numel()", "n = 4096 * 1024")
    verdict = verify_on_gpu(fixed, LARGE)
    assert verdict.status is Status.OK
    assert verdict.evidence.generalises["shape"] != "ok"
    assert verify_on_gpu(fixed, LARGE, generalise="require").status is not Status.OK


def test_a_process_spoilt_by_leaving_out_its_kernels_is_replaced_before_timing(verify_on_gpu: Verify) -> None:
    # What the kernel writes is used as an index by PyTorch: without the kernel that is unwritten memory.
    code = COPY + (
        "def triton_kernel_wrapper(x):\n"
        "    places = torch.argsort(x, dim=1)\n"
        "    return torch.gather(x, 1, copied(places))\n"
    )
    verdict = verify_on_gpu(code, task("x.sort(1).values", "torch.randn(256, 512)"))
    assert verdict.status is Status.OK, verdict.error
    assert verdict.timed


def test_the_compiled_reference_is_timed_beside_where_asked_for(verify_on_gpu: Verify) -> None:
    honest = verify_on_gpu(KERNEL, LARGE, baseline="compile")
    assert honest.compiled_time is not None, honest.evidence.flags
    assert honest.kernel_time is not None
    assert honest.speedup_compiled == pytest.approx(honest.compiled_time.median_ms / honest.kernel_time.median_ms)


def test_tf32_is_for_both_sides_or_for_neither(verify_on_gpu: Verify) -> None:
    product = """
import torch, triton
import triton.language as tl

@triton.jit
def k(a, b, c, n, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for at in range(0, n, BLOCK):
        m = at + tl.arange(0, BLOCK)
        x, y = tl.load(a + i[:, None] * n + m[None, :]), tl.load(b + m[:, None] * n + j[None, :])
        total = tl.dot(x, y, total) if PRECISION == "" else tl.dot(x, y, total, input_precision=PRECISION)
    tl.store(c + i[:, None] * n + j[None, :], total)

def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    k[(x.shape[0] // 64, x.shape[0] // 64)](x, x, out, x.shape[0], BLOCK=64, PRECISION="NAMED")
    return out
"""
    square = task("x @ x", "torch.randn(1024, 1024)")
    unnamed, named = product.replace("NAMED", ""), product.replace("NAMED", "tf32")
    assert verify_on_gpu(unnamed, square).status is Status.OK
    wrong = verify_on_gpu(named, square)
    assert wrong.status is Status.MISMATCH
    assert wrong.error is not None
    assert (wrong.error.pattern or "").startswith("precision")
    assert verify_on_gpu(named, square, tf32=True).status is Status.OK
    assert verify_on_gpu(unnamed, square, tf32=True).status is Status.OK
