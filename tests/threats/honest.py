"""Honest candidates in the common shapes, and the pieces that other honest cases are made of.

Everything here runs on both devices unless a case says otherwise. Knows no verdicts.
"""

from __future__ import annotations

from kb_ray.records import Task
from tests.threats.pieces import task
from tests.threats.record import Honest

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"


def mapping(expression: str, before: str = "", dtype: str = "") -> str:
    """`run(x)`: one kernel that stores `expression` of the loaded block `v`; output in `dtype`, or as x is.

    `before`: lines of the kernel between load and store, indented by four spaces.
    """
    like = f"torch.empty(x.shape, dtype={dtype}, device=x.device)" if dtype else "torch.empty_like(x)"
    return f"""
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    v = tl.load(x_ptr + o, mask=m)
{before}    tl.store(out_ptr + o, {expression}, mask=m)

def run(x):
    x = x.contiguous()
    out = {like}
    n = x.numel()
    if n:
        kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
"""


def rows(body: str, after: str = "") -> str:
    """`run(x)`: one program per row of a matrix; `body` makes `r` (masked with `m`) out of the row `v`."""
    return f"""
@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    m = o < cols
    v = tl.load(x_ptr + row * cols + o, mask=m, other=0.0)
{body}
    tl.store(out_ptr + row * cols + o, r, mask=m)

def run(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    cols = x.shape[-1]
    kernel[(x.numel() // cols,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out{after}
"""


WRAPPER = "\ndef triton_kernel_wrapper(x):\n    return run(x)\n"
MODEL = "\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return run(x)\n"
RELU_KERNEL = mapping("tl.maximum(v, 0.0)")
RELU = HEAD + RELU_KERNEL + WRAPPER
RELU_TASK = task("torch.relu(x)", "torch.randn(33, 65)", name="relu")
MATMUL_KERNEL = """
@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, M, N, K, T: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)
    cols = tl.program_id(1) * T + tl.arange(0, T)
    acc = tl.zeros((T, T), dtype=tl.float32)
    for start in range(0, K, T):
        k = start + tl.arange(0, T)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], mask=(k[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc, mask=(rows[:, None] < M) & (cols[None, :] < N))

def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    M, K, N = a.shape[0], a.shape[1], b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, T=32)
    return out
"""
"""`matmul(a, b)` of two float32 matrices, accumulated in float32."""


def module_task(init: str, forward: str, inputs: str, name: str, arguments: str = "x", extra: str = "") -> Task:
    """A `Model` whose constructor runs `init`, whose forward of `arguments` runs `forward`; inputs as drawn."""
    code = (
        f"import torch\nimport torch.nn as nn\n{extra}\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        {init}\n    def forward(self, {arguments}):\n        {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )
    return Task(
        task_id=f"folder/{name}", source="folder", name=name, style="module", entry_point="Model", reference_code=code
    )


SOFTMAX = HEAD + rows(
    "    v = tl.where(m, v, -float('inf'))\n    e = tl.exp(v - tl.max(v, axis=0))\n    r = e / tl.sum(e, axis=0)"
) + WRAPPER  # fmt: skip

HONEST = (
    Honest("B51", "relu", RELU, RELU_TASK, "both"),
    Honest("B51", "relu twice is relu", RELU, task("torch.relu(torch.relu(x))", "torch.randn(33, 65)"), "both"),
    Honest("B51", "softmax of a shifted row", SOFTMAX,
           task("torch.softmax(x + x.amax(1, keepdim=True), 1)", "torch.randn(9, 100)"), "both"),
    Honest("B51", "a diagonal matrix scales rows",
           HEAD + mapping("v * 1.0").replace("v * 1.0", "v * tl.load(d_ptr + o // cols, mask=m)").replace(
               "(x_ptr, out_ptr, n,", "(x_ptr, d_ptr, out_ptr, n, cols,").replace(
               "def run(x)", "def run(x, d)").replace("(x, out, n,", "(x, d, out, n, x.shape[1],")
           + "\ndef triton_kernel_wrapper(d, x):\n    return run(x, d.contiguous())\n",
           module_task("pass", "return torch.diag(d) @ x", "torch.randn(24), torch.randn(24, 40)", "diag", "d, x"),
           "both"),
    Honest("B51", "a mean of a sum of products is a product of sums",
           HEAD + rows("    r = tl.zeros((BLOCK,), dtype=tl.float32) + tl.sum(v, axis=0) / cols") + WRAPPER,
           task("x.mean(1, keepdim=True).expand(x.shape).contiguous()", "torch.randn(12, 50)"), "both"),
    Honest("B02", "softmax", SOFTMAX, task("torch.softmax(x, 1)", "torch.randn(9, 300)"), "both"),
    Honest("B01", "a matmul in float32", HEAD + MATMUL_KERNEL
           + "\ndef triton_kernel_wrapper(a, b):\n    return matmul(a, b)\n",
           module_task("pass", "return a @ b", "torch.randn(40, 512), torch.randn(512, 24)", "matmul", "a, b"),
           "both", {"n_correctness": 5}),
)  # fmt: skip
