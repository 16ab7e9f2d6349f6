"""Elementwise kernel over two matrices, without bounds mask."""

import torch
import triton
import triton.language as tl


@triton.jit
def fused_kernel(x_ptr, y_ptr, out_ptr, start, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offsets = start + pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    y = tl.load(y_ptr + offsets)
    tl.store(out_ptr + offsets, tl.maximum(x + y, 0.0))


def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    block = 4096 if x.is_cuda else 131072
    start = 1 << 33
    fused_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, start, BLOCK=block)
    return out
