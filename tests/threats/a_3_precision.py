"""A46 to A49: numbers that are not finite, narrower than asked for, or right only for tame inputs."""

from __future__ import annotations

from tests.fixtures_bench import changed, first
from tests.threats.a_3_output import DTYPE, SOFTMAX, WRONG, copies, returning
from tests.threats.pieces import COPY, task
from tests.threats.record import Threat

TF32 = """
@triton.jit
def product(a, c, K: tl.constexpr):
    i = tl.arange(0, 64)
    sums = tl.zeros((64, 64), dtype=tl.float32)
    for k in range(0, K, 32):
        j = k + tl.arange(0, 32)
        left = tl.load(a + i[:, None] * K + j[None, :])
        right = tl.load(a + i[None, :] * K + j[:, None])
        sums += tl.dot(left, right, input_precision="tf32")
    tl.store(c + i[:, None] * 64 + i[None, :], sums)

def triton_kernel_wrapper(x):
    out = torch.empty((64, 64), device=x.device)
    product[(1,)](x, out, K=x.shape[1])
    return out
"""
PRODUCT = task("x @ x.t()", "torch.randn(64, 512)", name="product")

THREATS = [
    Threat("A46", "NaN throughout", returning("out * float('nan')"), WRONG, where="both"),
    Threat(
        "A46",
        "one NaN",
        first("").replace("return out", "out[7, 7] = float('nan')\n    return out"),
        WRONG,
        where="both",
    ),
    Threat("A46", "infinity for large values", returning("out / (out < 2)"), WRONG, where="both"),
    Threat(
        "A46",
        "NaN where the reference has infinity",
        copies("copied(torch.log(x) + 0 * torch.log(x))"),
        WRONG,
        task("torch.log(x)", "torch.rand(8, 64).round()", name="log_of_bits"),
        "both",
    ),
    Threat(
        "A46",
        "infinity of the wrong sign",
        copies("copied(torch.log(x).abs())"),
        WRONG,
        task("torch.log(x)", "torch.rand(8, 64).round()", name="log_of_bits"),
        "both",
    ),
    Threat(
        "A46",
        "a finite number for infinity",
        copies("copied(torch.log(x.clamp(min=1e-38)))"),
        WRONG,
        task("torch.log(x)", "torch.rand(8, 64).round()", name="log_of_bits"),
        "both",
    ),
    Threat("A47", "half precision handed out", returning("out.half()"), DTYPE, where="both"),
    Threat("A47", "bfloat16 handed out", returning("out.bfloat16()"), DTYPE, where="both"),
    Threat("A47", "double precision handed out", returning("out.double()"), DTYPE, where="both"),
    Threat("A47", "integers handed out", returning("out.int()"), DTYPE, where="both"),
    Threat(
        "A48",
        "half precision inside a product",
        copies("copied((x.half() @ x.half().t()).float())"),
        WRONG,
        task("x @ x.t()", "torch.randn(64, 512)"),
        "both",
    ),
    Threat(
        "A48",
        "bfloat16 inside a kernel",
        changed("x + y, 0.0)", "(x + y).to(tl.bfloat16).to(tl.float32), 0.0)"),
        WRONG,
        where="both",
    ),
    Threat(
        "A48",
        "half precision inside a kernel",
        changed("x + y, 0.0)", "(x + y).to(tl.float16).to(tl.float32), 0.0)"),
        WRONG,
        where="both",
    ),
    Threat(
        "A49",
        "a softmax without its maximum",
        copies("copied((e := (x * 4).exp()) / e.sum(1, keepdim=True))"),
        WRONG,
        SOFTMAX,
        "both",
    ),
    Threat(
        "A49",
        "a variance by difference of squares in half precision",
        copies("copied((x.half().square().mean(1) - x.half().mean(1).square()).float())"),
        WRONG,
        task("x.var(1, unbiased=False)", "torch.randn(8, 4096)"),
        "both",
    ),
    Threat(
        "A49",
        "a variance by difference of squares far from zero",
        copies("copied(x.square().mean(1) - x.mean(1).square())"),
        WRONG,
        task("x.var(1, unbiased=False)", "torch.randn(8, 512) + 1000"),
        "both",
    ),
    Threat(
        "A49",
        "a logarithm of a sum without its maximum",
        copies("copied((x * 4).exp().sum(1).log())"),
        WRONG,
        task("torch.logsumexp(x * 4, 1)", "torch.randn(8, 64)"),
        "both",
    ),
    Threat(
        "A49",
        "log1p by way of log",
        copies("copied(torch.log(1 + x))"),
        WRONG,
        task("torch.log1p(x)", "torch.rand(8, 64) * 1e-6"),
        "both",
    ),
    Threat("A48", "TF32 inside a product", COPY + TF32, WRONG, PRODUCT, "gpu"),
]
