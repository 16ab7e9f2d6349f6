"""Pooling, both layers of the gate and the scaling of one image per program."""

import torch
import triton
import triton.language as tl


@triton.jit
def excite_kernel(
    x_ptr,
    w1_ptr,
    b1_ptr,
    w2_ptr,
    b2_ptr,
    out_ptr,
    channels,
    reduced,
    pixels,
    C: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
):
    image = tl.program_id(0)
    c = tl.arange(0, C)
    r = tl.arange(0, R)
    p = tl.arange(0, P)
    mask = (c[:, None] < channels) & (p[None, :] < pixels)
    offsets = image * channels * pixels + c[:, None] * pixels + p[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    pooled = tl.sum(x, axis=1) / pixels
    w1_mask = (r[:, None] < reduced) & (c[None, :] < channels)
    w1 = tl.load(w1_ptr + r[:, None] * channels + c[None, :], mask=w1_mask, other=0.0)
    squeezed = tl.sum(w1 * pooled[None, :], axis=1) + tl.load(b1_ptr + r, mask=r < reduced, other=0.0)
    squeezed = tl.maximum(squeezed, 0.0)
    w2_mask = (c[:, None] < channels) & (r[None, :] < reduced)
    w2 = tl.load(w2_ptr + c[:, None] * reduced + r[None, :], mask=w2_mask, other=0.0)
    logits = tl.sum(w2 * squeezed[None, :], axis=1) + tl.load(b2_ptr + c, mask=c < channels, other=0.0)
    tl.store(out_ptr + offsets, x * tl.sigmoid(logits)[:, None], mask=mask)


def triton_kernel_wrapper(x, squeeze_weight, squeeze_bias, excite_weight, excite_bias):
    batch, channels, height, width = x.shape
    reduced = squeeze_weight.shape[0]
    out = torch.empty_like(x)
    sizes = {
        "C": triton.next_power_of_2(channels),
        "R": triton.next_power_of_2(reduced),
        "P": triton.next_power_of_2(height * width),
    }
    excite_kernel[(batch,)](
        x,
        squeeze_weight,
        squeeze_bias,
        excite_weight,
        excite_bias,
        out,
        channels,
        reduced,
        height * width,
        **sizes,
    )
    return out
