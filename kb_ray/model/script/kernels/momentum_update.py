"""SGD with momentum, parameters and velocity updated in place."""

import triton
import triton.language as tl


@triton.jit
def momentum_kernel(param_ptr, grad_ptr, velocity_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    grad = tl.load(grad_ptr + offsets, mask=mask)
    velocity = 0.9 * tl.load(velocity_ptr + offsets, mask=mask) + grad
    param = tl.load(param_ptr + offsets, mask=mask) - 0.1 * velocity
    tl.store(velocity_ptr + offsets, velocity, mask=mask)
    tl.store(param_ptr + offsets, param, mask=mask)


def triton_kernel_wrapper(param, grad, velocity):
    n = param.numel()
    momentum_kernel[(triton.cdiv(n, 1024),)](param, grad, velocity, n, BLOCK=1024)
    return param, velocity
