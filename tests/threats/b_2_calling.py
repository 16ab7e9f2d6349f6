"""B05 to B10, B12, B13, B30: constructors, weights, inputs and outputs of every kind that tasks have.

Every candidate here is right; what differs is what it is given and what it gives back.
"""

from __future__ import annotations

from tests.threats.honest import HEAD, MATMUL_KERNEL, MODEL, RELU_KERNEL, WRAPPER, mapping, module_task
from tests.threats.pieces import task
from tests.threats.record import Honest

LINEAR = module_task("self.fc = nn.Linear(24, 16)", "return self.fc(x)", "torch.randn(10, 24)", "linear")
SQUARE = module_task("self.fc = nn.Linear(24, 24)", "return self.fc(x)", "torch.randn(10, 24)", "square")
TWO_LINEAR = module_task(
    "self.a = nn.Linear(24, 16, bias=False); self.b = nn.Linear(24, 16, bias=False)",
    "return self.a(x) + self.b(x)", "torch.randn(10, 24)", "two_linear",
)  # fmt: skip
BATCH_NORM = module_task("self.bn = nn.BatchNorm1d(16)", "return self.bn(x)", "torch.randn(32, 16)", "batch_norm")
COLUMNS = """
@triton.jit
def normalise(x_ptr, w_ptr, b_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    r = tl.arange(0, BLOCK)
    m = r < rows
    v = tl.load(x_ptr + r * cols + c, mask=m, other=0.0)
    d = tl.where(m, v - tl.sum(v, axis=0) / rows, 0.0)
    s = 1.0 / tl.sqrt(tl.sum(d * d, axis=0) / rows + 1e-5)
    tl.store(out_ptr + r * cols + c, d * s * tl.load(w_ptr + c) + tl.load(b_ptr + c), mask=m)
"""
STRIDED = """
@triton.jit
def kernel(x_ptr, out_ptr, n, cols, s0, s1, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    v = tl.load(x_ptr + (o // cols) * s0 + (o % cols) * s1, mask=m)
    tl.store(out_ptr + o, tl.maximum(v, 0.0), mask=m)

def triton_kernel_wrapper(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), x.shape[1], x.stride(0), x.stride(1), BLOCK=1024)
    return out
"""
IN_PLACE = """
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(x_ptr + o, tl.maximum(tl.load(x_ptr + o, mask=m), 0.0) * 2.0, mask=m)

def triton_kernel_wrapper(x):
    kernel[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024)
    return x
"""
GATHER = """
@triton.jit
def kernel(i_ptr, w_ptr, out_ptr, D: tl.constexpr):
    row = tl.load(i_ptr + tl.program_id(0))
    d = tl.arange(0, D)
    tl.store(out_ptr + tl.program_id(0) * D + d, tl.load(w_ptr + row * D + d))

def lookup(index, weight):
    out = torch.empty((*index.shape, weight.shape[1]), dtype=weight.dtype, device=weight.device)
    kernel[(index.numel(),)](index, weight, out, D=16)
    return out
"""
DOUBLING = HEAD + mapping("v * 2.0")
TWICE = "return x * 2"

HONEST = (
    Honest("B05", "renamed and reordered parameters, one more of them", HEAD + MATMUL_KERNEL + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, 5))
        self.bias_new = nn.Parameter(torch.randn(16))
        self.weight_new = nn.Parameter(torch.randn(16, 24))
    def forward(self, x):
        return matmul(x, self.weight_new.t()) + self.bias_new
""", LINEAR, "both"),
    Honest("B05", "no constructor's randomness of its own", HEAD + MATMUL_KERNEL + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        torch.randn(100)
        self.fc = nn.Linear(24, 16)
    def forward(self, x):
        return matmul(x, self.fc.weight.t()) + self.fc.bias
""", LINEAR, "both"),
    Honest("B05", "a wrapper that takes weights by name", HEAD + MATMUL_KERNEL + """
def triton_kernel_wrapper(x, fc_bias, fc_weight):
    return matmul(x, fc_weight.t()) + fc_bias
""", LINEAR, "both"),
    Honest("B05", "a wrapper that takes weights by position", HEAD + MATMUL_KERNEL + """
def triton_kernel_wrapper(x, w, b=None):
    return matmul(x, w.t()) + b
""".replace("b=None", "b"), LINEAR, "both"),
    Honest("B06", "weights prepared at the first call", HEAD + MATMUL_KERNEL + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, 16)
        self.turned = None
    def forward(self, x):
        if self.turned is None:
            self.turned = self.fc.weight.detach().t().contiguous()
        return matmul(x, self.turned) + self.fc.bias
""", LINEAR, "both"),
    Honest("B06", "a weight turned in the constructor", HEAD + MATMUL_KERNEL + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        fc = nn.Linear(24, 24)
        self.turned = nn.Parameter(fc.weight.detach().t().contiguous())
        self.bias = fc.bias
    def forward(self, x):
        return matmul(x, self.turned) + self.bias
""", SQUARE, "both"),
    Honest("B06", "weights joined in the constructor", HEAD + MATMUL_KERNEL + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        a, b = nn.Linear(24, 16, bias=False), nn.Linear(24, 16, bias=False)
        self.register_buffer("both", torch.cat([a.weight, b.weight]).detach().t().contiguous())
    def forward(self, x):
        out = matmul(x, self.both)
        return out[:, :16] + out[:, 16:]
""", TWO_LINEAR, "both"),
    Honest("B06", "two layers fused into one", HEAD + MATMUL_KERNEL + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(24, 16, bias=False)
        self.b = nn.Linear(24, 16, bias=False)
        self.fused = None
    def forward(self, x):
        if self.fused is None:
            self.fused = (self.a.weight + self.b.weight).detach().t().contiguous()
        return matmul(x, self.fused)
""", TWO_LINEAR, "both"),
    Honest("B07", "BatchNorm in training mode", HEAD + COLUMNS + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(16)
    def forward(self, x):
        out = torch.empty_like(x)
        normalise[(x.shape[1],)](x, self.bn.weight, self.bn.bias, out, *x.shape, BLOCK=32)
        return out
""", BATCH_NORM, "both", {"n_correctness": 5}),
    Honest("B07", "dropout that drops nothing", HEAD + mapping("v * 3.0") + MODEL,
           module_task("self.drop = nn.Dropout(0.0)", "return self.drop(x) * 3", "torch.randn(33, 65)", "dropout"),
           "both"),
    Honest("B08", "inputs drawn by numpy and random", DOUBLING + WRAPPER,
           module_task("pass", TWICE, "torch.from_numpy(numpy.random.rand(33, 65).astype('float32')) + random.random()",
                       "numpy_inputs", extra="import numpy, random"), "cpu"),
    Honest("B09", "a tuple", DOUBLING + "\ndef triton_kernel_wrapper(x):\n    return run(x), x.shape[0]\n",
           module_task("pass", "return x * 2, x.shape[0]", "torch.randn(8, 9)", "tuple"), "both"),
    Honest("B09", "a list for a tuple", DOUBLING
           + "\ndef triton_kernel_wrapper(x):\n    return [run(x), run(run(x))]\n",
           module_task("pass", "return x * 2, x * 4", "torch.randn(8, 9)", "list"), "both"),
    Honest("B09", "a dict with None", DOUBLING
           + "\ndef triton_kernel_wrapper(x):\n    return {'aux': None, 'out': run(x)}\n",
           module_task("pass", "return {'out': x * 2, 'aux': None}", "torch.randn(8, 9)", "dict"), "both"),
    Honest("B09", "a number", DOUBLING
           + "\ndef triton_kernel_wrapper(x):\n    return run(x), float(run(x)[0, 0])\n",
           module_task("pass", "return x * 2, (x[0, 0] * 2).item()", "torch.randn(8, 9)", "number"), "both"),
    Honest("B10", "integer indices", HEAD + GATHER + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
    def forward(self, i):
        return lookup(i, self.emb.weight)
""", module_task("self.emb = nn.Embedding(30, 16)", "return self.emb(i)", "torch.randint(0, 30, (5, 7))", "emb", "i"),
           "both"),
    Honest("B10", "a mask of bools and a number", HEAD + """
@triton.jit
def kernel(x_ptr, m_ptr, out_ptr, n, value, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(m_ptr + o, mask=o < n, other=0) != 0
    tl.store(out_ptr + o, tl.where(keep, tl.load(x_ptr + o, mask=o < n), value), mask=o < n)

def triton_kernel_wrapper(x, mask, value):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, mask, out, x.numel(), value, BLOCK=256)
    return out
""", module_task("pass", "return torch.where(mask, x, value)", "torch.randn(9, 40), torch.rand(9, 40) > 0.5, 2.5",
                 "masked", "x, mask, value"), "both"),
    Honest("B12", "channels_last made contiguous", HEAD + RELU_KERNEL + WRAPPER,
           task("torch.relu(x)", "torch.randn(2, 3, 8, 9).to(memory_format=torch.channels_last)"), "both"),
    Honest("B12", "a transposed input read by its strides", HEAD + STRIDED,
           task("torch.relu(x)", "torch.randn(40, 30).t()"), "both", {"n_correctness": 5}),
    Honest("B12", "an expanded input read by its strides", HEAD + STRIDED,
           task("torch.relu(x)", "torch.randn(1, 30).expand(40, 30)"), "both", {"n_correctness": 7}),
    Honest("B12", "every second column read by its strides", HEAD + STRIDED,
           task("torch.relu(x)", "torch.randn(40, 60)[:, ::2]"), "both"),
    Honest("B12", "an output in another layout", HEAD + RELU_KERNEL
           + "\ndef triton_kernel_wrapper(x):\n    return run(x).t().contiguous().t()\n",
           task("torch.relu(x)", "torch.randn(40, 30)"), "both"),
    Honest("B13", "in place as the reference", HEAD + IN_PLACE, task("x.relu_().mul_(2)", "torch.randn(9, 40)"),
           "both"),
    Honest("B13", "not in place where the reference is", HEAD + mapping("tl.maximum(v, 0.0) * 2.0") + WRAPPER,
           task("x.relu_().mul_(2)", "torch.randn(9, 40)"), "both"),
    Honest("B13", "one tensor given twice", HEAD + """
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(out_ptr + o, tl.load(x_ptr + o, mask=m) * tl.load(y_ptr + o, mask=m), mask=m)

def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
""", module_task("pass", "return x * y", "*[torch.randn(9, 40)] * 2", "aliased", "x, y"), "both"),
    Honest("B30", "a Parameter for a tensor", DOUBLING
           + "\ndef triton_kernel_wrapper(x):\n    return nn.Parameter(run(x), requires_grad=False)\n",
           module_task("pass", TWICE, "torch.randn(8, 9)", "parameter"), "both"),
    Honest("B30", "a tensor made in inference mode", DOUBLING
           + "\n@torch.inference_mode()\ndef triton_kernel_wrapper(x):\n    return run(x)\n",
           module_task("pass", TWICE, "torch.randn(8, 9)", "inference"), "both"),
    Honest("B30", "a view that wants gradients", DOUBLING
           + "\ndef triton_kernel_wrapper(x):\n    return run(x).requires_grad_().view(-1).view(x.shape)\n",
           module_task("pass", TWICE, "torch.randn(8, 9)", "grad"), "both"),
)  # fmt: skip
