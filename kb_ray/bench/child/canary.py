"""A kernel known to be right: says whether a GPU still works."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)
