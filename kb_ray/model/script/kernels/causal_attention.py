"""Causal attention, one head per program."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, length, features, scale, T: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(0) * length * features
    t = tl.arange(0, T)
    d = tl.arange(0, D)
    mask = (t[:, None] < length) & (d[None, :] < features)
    offsets = base + t[:, None] * features + d[None, :]
    q = tl.load(q_ptr + offsets, mask=mask, other=0.0)
    k = tl.load(k_ptr + offsets, mask=mask, other=0.0)
    v = tl.load(v_ptr + offsets, mask=mask, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    visible = (t[None, :] <= t[:, None]) & (t[None, :] < length)
    scores = tl.where(visible, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    weights = weights / tl.sum(weights, axis=1)[:, None]
    tl.store(out_ptr + offsets, tl.dot(weights, v, input_precision="ieee"), mask=mask)


def triton_kernel_wrapper(q, k, v):
    batch, heads, length, features = q.shape
    out = torch.empty_like(q)
    scale = 1.0 / features**0.5
    sizes = {"T": max(16, triton.next_power_of_2(length)), "D": max(16, triton.next_power_of_2(features))}
    attention_kernel[(batch * heads,)](q, k, v, out, length, features, scale, **sizes)
    return out
