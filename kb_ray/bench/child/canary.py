"""A kernel known to be right, in the form of a candidate: says whether a device still works.

It is also run as a candidate from its text, so it may import nothing of kb_ray.
"""

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)


def triton_kernel_wrapper(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double[(4,)](x, out, x.numel(), BLOCK=1024)
    return out
