"""Convolution as an implicit matrix product, normalisation and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_kernel(
    x_ptr,
    w_ptr,
    conv_bias_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    var_ptr,
    out_ptr,
    channels_in,
    channels_out,
    height,
    width,
    eps,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    STEP: tl.constexpr,
):
    image = tl.program_id(0)
    pixels = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    channels = tl.arange(0, CHANNELS)
    known = channels < channels_out
    inside = pixels < height * width
    row = pixels // width
    col = pixels % width
    taps = channels_in * 9
    total = tl.zeros((PIXELS, CHANNELS), dtype=tl.float32)
    for start in range(0, taps, STEP):
        k = start + tl.arange(0, STEP)
        y = row[:, None] + (k % 9 // 3)[None, :] - 1
        x = col[:, None] + (k % 3)[None, :] - 1
        mask = inside[:, None] & (k < taps)[None, :] & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        source = ((image * channels_in + (k // 9)[None, :]) * height + y) * width + x
        value = tl.load(x_ptr + source, mask=mask, other=0.0)
        w_mask = (k < taps)[:, None] & known[None, :]
        w = tl.load(w_ptr + channels[None, :] * taps + k[:, None], mask=w_mask, other=0.0)
        total += tl.dot(value, w, input_precision="ieee")
    scale = tl.load(weight_ptr + channels, mask=known, other=0.0)
    scale = scale / tl.sqrt(tl.load(var_ptr + channels, mask=known, other=1.0) + eps)
    shift = tl.load(conv_bias_ptr + channels, mask=known, other=0.0)
    shift = shift - tl.load(mean_ptr + channels, mask=known, other=0.0)
    bias = tl.load(bias_ptr + channels, mask=known, other=0.0)
    result = (total + shift[None, :]) * scale[None, :] + bias[None, :]
    target = (image * channels_out + channels[None, :]) * height * width + pixels[:, None]
    tl.store(out_ptr + target, tl.maximum(result, 0.0), mask=inside[:, None] & known[None, :])


def triton_kernel_wrapper(x, conv_weight, conv_bias, weight, bias, mean, var):
    batch, channels_in, height, width = x.shape
    channels_out = conv_weight.shape[0]
    out = torch.empty((batch, channels_out, height, width), device=x.device, dtype=x.dtype)
    conv_kernel[(batch, triton.cdiv(height * width, 64))](
        x,
        conv_weight,
        conv_bias,
        weight,
        bias,
        mean,
        var,
        out,
        channels_in,
        channels_out,
        height,
        width,
        1e-5,
        PIXELS=64,
        CHANNELS=max(16, triton.next_power_of_2(channels_out)),
        STEP=32,
    )
    return out
