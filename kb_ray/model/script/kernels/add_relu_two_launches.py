"""Sum and ReLU as two kernels, each a small grid of programs that walk through memory."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, per_program, BLOCK: tl.constexpr):
    start = tl.program_id(0) * per_program
    for step in range(0, per_program, BLOCK):
        offsets = start + step + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask)
        y = tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def relu_kernel(sum_ptr, out_ptr, n, per_program, BLOCK: tl.constexpr):
    start = tl.program_id(0) * per_program
    for step in range(0, per_program, BLOCK):
        offsets = start + step + tl.arange(0, BLOCK)
        mask = offsets < n
        total = tl.load(sum_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


def triton_kernel_wrapper(x, y):
    total = torch.empty_like(x)
    out = torch.empty_like(x)
    n = x.numel()
    programs, block = 32, 16384
    per_program = triton.cdiv(n, programs * block) * block
    add_kernel[(programs,)](x, y, total, n, per_program, BLOCK=block, num_warps=8)
    relu_kernel[(programs,)](total, out, n, per_program, BLOCK=block, num_warps=8)
    return out
