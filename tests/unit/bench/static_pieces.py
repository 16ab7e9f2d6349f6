"""An honest kernel and the finding of a source, for tests of the static rules."""

from __future__ import annotations

from kb_ray.bench.static import StaticFinding, check_static
from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import Status

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""


def finding(code: str, status: Status) -> StaticFinding:
    found = check_static(code)
    assert found is not None, code
    assert found.status is status, found
    assert found.error.category == CATEGORY_BY_STATUS[status]
    return found
