"""Shifts, masks and a product of two integer matrices."""

import torch
import triton
import triton.language as tl


@triton.jit
def bit_mix_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0)
    result = (x ^ (y << 1)) + (((x & 15) * y) >> 2)
    tl.store(out_ptr + offsets, result, mask=mask)


def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    bit_mix_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
