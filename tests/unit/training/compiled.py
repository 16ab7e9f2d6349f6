"""Rows of pairs as PyTorch's compiler wrote their kernels, for tests: a product, an addition, a sum of rows."""

from __future__ import annotations

PROGRAM = """import torch
import torch.nn as nn


class Blend(nn.Module):

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        return torch.relu(x + y) * self.scale


def get_inputs():
    return [torch.rand([4, 4]), torch.rand([4, 4])]


def get_init_inputs():
    return [[], {'scale': 3.0}]
"""
HEAD = """import torch
import triton
import triton.language as tl
from torch._inductor.runtime.triton_heuristics import grid
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.runtime import triton_helpers
import torch.nn as nn
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor


"""
KERNEL = (
    HEAD
    + """@triton.jit
def blend_kernel(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask)
    tmp1 = tl.load(in_ptr1 + xindex, xmask)
    tl.store(out_ptr0 + xindex, triton_helpers.maximum(tl.full([1], 0, tl.int32), tmp0 + tmp1) * 3.0, xmask)


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    assert_size_stride(arg0_1, (4, 4), (4, 1))
    assert_size_stride(arg1_1, (4, 4), (4, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((4, 4), (4, 1), torch.float32)
        stream0 = get_raw_stream(0)
        blend_kernel[grid(16)](arg0_1, arg1_1, buf0, 16, XBLOCK=16, num_warps=1, num_stages=1)
        del arg0_1
        del arg1_1
    return reinterpret_tensor(buf0, (4, 4), (4, 1), 0),


class BlendNew(nn.Module):

    def __init__(self, scale):
        super(BlendNew, self).__init__()
        self.scale = scale

    def forward(self, input_0, input_1):
        arg0_1 = input_0
        arg1_1 = input_1
        output = call([arg0_1, arg1_1])
        return output[0]
"""
)
ROW = {"python_code": PROGRAM, "triton_code": KERNEL, "entry_point": "Blend", "module_name": "Blend", "uuid": 7}
HANDWRITTEN = """import torch
import triton
import triton.language as tl


@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out_ptr + offsets, 2.0 * tl.load(x_ptr + offsets, mask=inside), mask=inside)


def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    twice_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)  # one program for 64
    return out
"""
FUNCTION = "import torch\n\n\ndef reference_impl(x):\n    return 2.0 * x\n"
