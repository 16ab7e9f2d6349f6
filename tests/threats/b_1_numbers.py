"""B01 to B04, B11, B14, B15, B53: right answers that differ in their last bits, in ties, or in what they hold."""

from __future__ import annotations

from tests.threats.honest import HEAD, MODEL, WRAPPER, mapping, module_task, rows
from tests.threats.pieces import task
from tests.threats.record import Honest

LONG_SUM = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        o = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * cols + o, mask=o < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(acc, axis=0))

def triton_kernel_wrapper(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=256)
    return out
"""
)

LAYER_NORM = HEAD + rows(
    "    mean = tl.sum(v, axis=0) / cols\n"
    "    d = tl.where(m, v - mean, 0.0)\n"
    "    r = d * (1.0 / tl.sqrt(tl.sum(d * d, axis=0) / cols + 1e-5))"
) + WRAPPER  # fmt: skip

ARGMAX = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + row * cols + o, mask=o < cols, other=-float("inf"))
    best = tl.max(v, axis=0)
    tl.store(out_ptr + row, tl.max(tl.where((v == best) & (o < cols), o, -1), axis=0).to(tl.int64))

def triton_kernel_wrapper(x):
    out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return KEPT
"""
)

TOPK = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, v_ptr, i_ptr, cols, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + row * cols + o, mask=o < cols, other=-float("inf"))
    free = o < cols
    for k in range(K):
        best = tl.max(tl.where(free, v, -float("inf")), axis=0)
        at = tl.max(tl.where(free & (v == best), o, -1), axis=0)
        tl.store(v_ptr + row * K + k, best)
        tl.store(i_ptr + row * K + k, at.to(tl.int64))
        free = free & (o != at)

def triton_kernel_wrapper(x):
    values = torch.empty((x.shape[0], 4), dtype=x.dtype, device=x.device)
    indices = torch.empty((x.shape[0], 4), dtype=torch.int64, device=x.device)
    kernel[(x.shape[0],)](x, values, indices, x.shape[1], K=4, BLOCK=triton.next_power_of_2(x.shape[1]))
    return values, indices
"""
)

ATOMIC_SUM = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + o, mask=o < n, other=0.0), axis=0))

def triton_kernel_wrapper(x):
    out = torch.zeros((), dtype=x.dtype, device=x.device)
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""
)

TIED = "(torch.randn(40, 70) * 2).round()"
MASKED_SOFTMAX = HEAD + rows(
    "    row_in = row % cols\n"
    "    v = tl.where(m & (o <= row_in), v, -float('inf'))\n"
    "    e = tl.exp(v - tl.max(v, axis=0))\n    r = e / tl.sum(e, axis=0)"
) + WRAPPER  # fmt: skip
CAUSAL = "torch.triu(torch.full((x.shape[1], x.shape[1]), -float('inf'), device=x.device), 1)"

HONEST = (
    Honest("B02", "a long sum in another order", LONG_SUM, task("x.sum(1)", "torch.rand(6, 5000)"), "both"),
    Honest("B02", "a long sum of float16 kept in float32", LONG_SUM,
           task("x.sum(1)", "torch.randn(6, 3000).half()"), "both"),
    Honest("B02", "exponentials and a reciprocal", HEAD + mapping("v / (1.0 + tl.exp(-v))") + WRAPPER,
           task("torch.nn.functional.silu(x)", "torch.randn(33, 65) * 4"), "both"),
    Honest("B02", "a fused half-precision chain, more exact than the reference",
           HEAD + mapping("(f * (1.0 / (1.0 + tl.exp(-f))) + f).to(tl.float16)",
                          "    f = v.to(tl.float32) * 1.7\n") + WRAPPER,
           task("(lambda y: y * torch.sigmoid(y) + y)(x * 1.7)", "torch.randn(33, 65).half()"), "both"),
    Honest("B02", "LayerNorm", LAYER_NORM, task("torch.nn.functional.layer_norm(x, x.shape[1:])",
           "torch.randn(20, 200)"), "both", {"n_correctness": 5}),
    Honest("B02", "LayerNorm far from zero", LAYER_NORM, task("torch.nn.functional.layer_norm(x, x.shape[1:])",
           "torch.randn(20, 200) + 100"), "both", {"n_correctness": 5}),
    Honest("B03", "elements that cancel to nearly nothing", HEAD + mapping("(v + 1.0) - 1.0") + WRAPPER,
           task("(x + 1) - 1", "torch.randn(33, 65)"), "both"),
    Honest("B03", "tiny values", HEAD + mapping("v * v") + WRAPPER, task("x * x", "torch.randn(33, 65) * 1e-9"),
           "both"),
    Honest("B04", "argmax that takes the last of equals", ARGMAX.replace("KEPT", "out"),
           task("x.argmax(1)", TIED), "both", {"n_correctness": 5}),
    Honest("B04", "argmax that keeps its axis", ARGMAX.replace("KEPT", "out.unsqueeze(1)"),
           task("x.argmax(1, keepdim=True)", TIED), "both"),
    Honest("B04", "argmax of distinct values with spikes", ARGMAX.replace("KEPT", "out"),
           task("x.argmax(1)", "torch.randn(60, 200)"), "cpu", {"n_correctness": 7}),
    Honest("B04", "topk that takes the last of equals", TOPK, task("torch.topk(x, 4, dim=1)", TIED), "both"),
    Honest("B11", "a float64 output", HEAD + mapping("v.to(tl.float64) * 2.0", dtype="torch.float64") + WRAPPER,
           task("x.double() * 2", "torch.randn(33, 65)"), "both"),
    Honest("B11", "an int32 output", HEAD + mapping("tl.where(v > 0, 3, -3).to(tl.int32)", dtype="torch.int32")
           + WRAPPER,
           task("torch.where(x > 0, 3, -3).int()", "torch.randn(33, 65)"), "both"),
    Honest("B11", "a bool output", HEAD + mapping("v > 0.5", dtype="torch.bool") + WRAPPER,
           task("x > 0.5", "torch.randn(33, 65)"), "both"),
    Honest("B14", "infinities where the reference has them",
           HEAD + mapping("tl.where(v > 0, v, -float('inf'))") + WRAPPER,
           task("x.masked_fill(x <= 0, -float('inf'))", "torch.randn(33, 65)"), "both"),
    Honest("B14", "a causal mask of infinities", MASKED_SOFTMAX,
           task(f"torch.softmax(x + {CAUSAL}, -1)", "torch.randn(12, 12)"), "both"),
    Honest("B14", "NaN where the reference has it", HEAD + mapping("tl.where(v > 0, tl.log(v), float('nan'))")
           + WRAPPER,
           task("torch.log(x)", "torch.randn(33, 65)"), "both"),
    Honest("B15", "an output of one number", ATOMIC_SUM, task("x.sum()", "torch.rand(33, 65)"), "both"),
    Honest("B15", "an empty output beside a full one",
           HEAD + mapping("tl.maximum(v, 0.0)")
           + "\ndef triton_kernel_wrapper(x):\n    return run(x), x.new_empty((0, x.shape[1]))\n",
           module_task("pass", "return torch.relu(x), x[:0]", "torch.randn(33, 65)", "empty"), "both"),
    Honest("B15", "an output of shape (1,)", ATOMIC_SUM.replace("torch.zeros((),", "torch.zeros((1,),"),
           task("x.sum().view(1)", "torch.rand(33, 65)"), "both"),
    Honest("B53", "atomic additions in any order", ATOMIC_SUM.replace("x.numel(), BLOCK=256", "x.numel(), BLOCK=64")
           .replace("x.numel(), 256)", "x.numel(), 64)"), task("x.sum()", "torch.randn(50, 100)"), "both"),
    Honest("B53", "a histogram by atomics", HEAD + """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.atomic_add(out_ptr + tl.load(x_ptr + o, mask=m, other=0), tl.full((BLOCK,), 1, tl.int64), mask=m)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(10, dtype=torch.int64, device=x.device)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
""", task("torch.bincount(x, minlength=10)", "torch.randint(0, 10, (1000,))"), "both"),
    Honest("B02", "a model beside a wrapper's usual form", HEAD + mapping("tl.maximum(v, 0.0)") + MODEL,
           task("torch.relu(x)", "torch.randn(33, 65)"), "both"),
)  # fmt: skip
