"""Both linear layers, ReLU and residual in one program per tile of rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def mlp_kernel(
    x_ptr,
    up_w,
    up_b,
    down_w,
    down_b,
    out_ptr,
    rows,
    features,
    hidden,
    ROWS: tl.constexpr,
    F: tl.constexpr,
    H: tl.constexpr,
):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    f = tl.arange(0, F)
    h = tl.arange(0, H)
    x_mask = (r[:, None] < rows) & (f[None, :] < features)
    x = tl.load(x_ptr + r[:, None] * features + f[None, :], mask=x_mask, other=0.0)
    up_mask = (f[:, None] < features) & (h[None, :] < hidden)
    up = tl.load(up_w + h[None, :] * features + f[:, None], mask=up_mask, other=0.0)
    inner = tl.dot(x, up, input_precision="ieee")
    inner = tl.maximum(inner + tl.load(up_b + h, mask=h < hidden, other=0.0)[None, :], 0.0)
    down_mask = (h[:, None] < hidden) & (f[None, :] < features)
    down = tl.load(down_w + f[None, :] * hidden + h[:, None], mask=down_mask, other=0.0)
    result = tl.dot(inner, down, input_precision="ieee")
    result += tl.load(down_b + f, mask=f < features, other=0.0)[None, :] + x
    tl.store(out_ptr + r[:, None] * features + f[None, :], result, mask=x_mask)


def triton_kernel_wrapper(x, up_weight, up_bias, down_weight, down_bias):
    rows, features = x.shape
    hidden = up_weight.shape[0]
    out = torch.empty_like(x)
    sizes = {
        "ROWS": 16,
        "F": max(16, triton.next_power_of_2(features)),
        "H": max(16, triton.next_power_of_2(hidden)),
    }
    grid = (triton.cdiv(rows, 16),)
    mlp_kernel[grid](x, up_weight, up_bias, down_weight, down_bias, out, rows, features, hidden, **sizes)
    return out
