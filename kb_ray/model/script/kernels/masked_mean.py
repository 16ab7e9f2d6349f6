"""Mean over the valid steps of one sequence per program."""

import torch
import triton
import triton.language as tl


@triton.jit
def masked_mean_kernel(
    x_ptr, lengths_ptr, out_ptr, steps, features, STEPS: tl.constexpr, BLOCK: tl.constexpr
):
    batch = tl.program_id(0)
    t = tl.arange(0, STEPS)
    f = tl.arange(0, BLOCK)
    length = tl.load(lengths_ptr + batch)
    mask = (t[:, None] < length) & (f[None, :] < features)
    offsets = batch * steps * features + t[:, None] * features + f[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / length.to(tl.float32)
    tl.store(out_ptr + batch * features + f, mean, mask=f < features)


def triton_kernel_wrapper(x, lengths):
    batch, steps, features = x.shape
    out = torch.empty((batch, features), device=x.device, dtype=x.dtype)
    sizes = {"STEPS": triton.next_power_of_2(steps), "BLOCK": triton.next_power_of_2(features)}
    masked_mean_kernel[(batch,)](x, lengths, out, steps, features, **sizes)
    return out
