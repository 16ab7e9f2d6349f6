"""A kernel known to be right: says whether a GPU still works."""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def double(x_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)
