"""Rows that only a GPU shows: precision of products, tuning, compiled handles, timing of very short and long calls.

Knows no times: what must hold is that the candidate is accepted.
"""

from __future__ import annotations

from tests.threats.b_3_triton import LAUNCH, replaced
from tests.threats.honest import HEAD, MATMUL_KERNEL, MODEL, RELU, RELU_KERNEL, RELU_TASK, WRAPPER, mapping, module_task
from tests.threats.pieces import task
from tests.threats.record import Honest

MATMUL = HEAD + MATMUL_KERNEL + "\ndef triton_kernel_wrapper(a, b):\n    return matmul(a, b)\n"
TUTORIAL = RELU.replace("        " + LAUNCH, """        compiled = kernel.warmup(x, out, n, BLOCK=1024, grid=(1,))
        compiled._init_handles()
        compiled[(triton.cdiv(n, 1024), 1, 1)](x, out, n, 1024)""")  # fmt: skip
KEPT_HANDLE = RELU.replace("        " + LAUNCH, """        grid = (triton.cdiv(n, 1024), 1, 1)
        if n in KEPT:
            KEPT[n][grid](x, out, n, 1024)
        else:
            KEPT[n] = kernel[grid](x, out, n, BLOCK=1024)""") + "\nKEPT = {}\n"  # fmt: skip
TOO_LARGE = HEAD + MATMUL_KERNEL.replace(
    "    kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, T=32)\n",
    """    for tile, stages in ((128, 8), (32, 2)):
        grid = (triton.cdiv(M, tile), triton.cdiv(N, tile))
        try:
            kernel[grid](a, b, out, M, N, K, T=tile, num_stages=stages)
            return out
        except triton.OutOfResources:
            continue
""",
) + "\ndef triton_kernel_wrapper(a, b):\n    return matmul(a, b)\n"  # fmt: skip
CONFIGS = (
    "[triton.Config({'T': t}, num_warps=w, num_stages=s) for t in (16, 32, 64) for w in (2, 4, 8) for s in (1, 2, 3)]"
)
MANY_CONFIGS = MATMUL.replace("@triton.jit", f"@triton.autotune({CONFIGS}, key=['M', 'N', 'K'])\n@triton.jit").replace(
    "kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, T=32)",
    "kernel[lambda m: (triton.cdiv(M, m['T']), triton.cdiv(N, m['T']))](a, b, out, M, N, K)",
)
CONV = module_task(
    "self.conv = nn.Conv2d(16, 32, 3)", "return torch.relu(self.conv(x))", "torch.randn(8, 16, 64, 64)", "conv"
)
LIBDEVICE = HEAD + "from triton.language.extra import libdevice\n" + mapping("libdevice.tanh(v)") + WRAPPER
DIAGONAL = (
    HEAD
    + """
@triton.jit
def kernel(d_ptr, x_ptr, out_ptr, n, cols, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(out_ptr + o, tl.load(x_ptr + o, mask=m) * tl.load(d_ptr + o // cols, mask=m), mask=m)

def triton_kernel_wrapper(d, x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](d, x, out, x.numel(), x.shape[1], BLOCK=1024)
    return out
"""
)
_TEN = ", ".join(f"x{i}" for i in range(10))
SUM_OF_TEN = (
    HEAD
    + f"""
@triton.jit
def kernel({_TEN}, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    v = {" + ".join(f"tl.load(x{i} + o, mask=m)" for i in range(10))}
    tl.store(out_ptr + o, v, mask=m)

def triton_kernel_wrapper({_TEN}):
    out = torch.empty_like(x0)
    n = x0.numel()
    kernel[(triton.cdiv(n, 1024),)]({_TEN}, out, n, BLOCK=1024)
    return out
"""
)
SUMS = module_task(
    "pass", f"return {_TEN.replace(', ', ' + ')}", "*(torch.randn(33, 65) for _ in range(10))", "ten", _TEN
)
DIFFERENCES = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(out_ptr + o, tl.load(x_ptr + o + 1, mask=m) - tl.load(x_ptr + o, mask=m), mask=m)

def triton_kernel_wrapper(x):
    n = x.numel() - 1
    out = torch.empty(n, dtype=x.dtype, device=x.device)
    kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
"""
)
OFFSETS = task(
    "torch.diff(x) if bool((torch.diff(x) >= 0).all()) else [][0]", "torch.randint(1, 9, (400,)).cumsum(0)",
    name="offsets",
)  # fmt: skip
MASKED = (
    HEAD
    + """
@triton.jit
def kernel(x_ptr, lengths_ptr, out_ptr, n, cols, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    kept = o % cols < tl.load(lengths_ptr + o // cols, mask=m)
    tl.store(out_ptr + o, tl.where(kept, tl.load(x_ptr + o, mask=m), 0.0), mask=m)

def triton_kernel_wrapper(x, lengths):
    out = torch.empty_like(x)
    n = x.numel()
    kernel[(triton.cdiv(n, 1024),)](x, lengths, out, n, x.shape[1], BLOCK=1024)
    return out
"""
)
LENGTHS = module_task(
    "pass",
    "return x * (torch.arange(x.shape[1], device=x.device) < lengths[:, None])"
    " if bool((lengths[1:] <= lengths[:-1]).all()) else [][0]",
    "torch.randn(64, 50), torch.randint(1, 51, (64,)).sort(descending=True).values",
    "lengths",
    "x, lengths",
)


def product(m: int, k: int, n: int, dtype: str = "") -> object:
    """A task that multiplies (m, k) by (k, n)."""
    suffix = f".{dtype}()" if dtype else ""
    return module_task(
        "pass",
        "return a @ b",
        f"torch.randn({m}, {k}){suffix}, torch.randn({k}, {n}){suffix}",
        f"product_{k}{dtype}",
        "a, b",
    )


def sized(*shape: int, name: str) -> object:
    """relu of a tensor of this shape."""
    return task("torch.relu(x)", f"torch.randn{shape}", name=name)


HONEST = tuple(
    Honest(row, name, code, given, "gpu", settings)  # type: ignore[arg-type]
    for row, name, code, given, settings in (
        ("B01", "a product of 4096 terms in IEEE float32", MATMUL, product(128, 4096, 128), {"n_correctness": 5}),
        ("B01", "a product of 4096 terms split in three TF32 parts",
         MATMUL.replace('"ieee"', '"tf32x3"'), product(128, 4096, 128), {}),
        ("B02", "a product of float16 kept in float32", MATMUL, product(128, 1024, 128, "half"), {}),
        ("B16", "tuning by timing of a kernel that adds atomically", replaced(
            ("@triton.jit", "@triton.autotune([triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 1024})],"
             " key=['n'], reset_to_zero=['out_ptr'])\n@triton.jit"),
            ("tl.store(out_ptr + o, tl.maximum(v, 0.0), mask=m)",
             "tl.atomic_add(out_ptr + o, tl.maximum(v, 0.0), mask=m)"),
            ("torch.empty_like(x)", "torch.zeros_like(x)"),
            (LAUNCH, "kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, out, n)"),
        ), RELU_TASK, {"n_correctness": 5}),
        ("B18", "tuning among 27 configurations that must each be compiled", MANY_CONFIGS,
         product(128, 512, 128, "half"), {}),
        ("B18", "a first try that asks for too much shared memory", TOO_LARGE, product(256, 512, 256, "half"), {}),
        ("B19", "odd sizes and addresses", RELU, sized(1021, 1, 3, name="odd"), {"n_correctness": 5}),
        ("B31", "one launch of a microsecond", RELU, sized(8, name="eight"), {}),
        ("B31", "a launch on a stream of its own", replaced(
            (LAUNCH, "side = torch.cuda.Stream()\n        side.wait_stream(torch.cuda.current_stream())\n"
             "        with torch.cuda.stream(side):\n            " + LAUNCH +
             "\n        torch.cuda.current_stream().wait_stream(side)"),
        ), sized(512, 512, name="side"), {}),
        ("B32", "two kernels of one name", HEAD + "\ndef make():\n"
         + RELU_KERNEL.split("def run")[0].replace("\n", "\n    ")
         + "return kernel\n\nfirst, second = make(), make()\n\ndef run"
         + RELU_KERNEL.split("def run")[1].replace(LAUNCH, "(first if n % 2 else second)[(triton.cdiv(n, 1024),)]"
                                                           "(x, out, n, BLOCK=1024)") + WRAPPER,
         sized(300, 301, name="twins"), {}),
        ("B33", "a compiled handle from warmup", TUTORIAL, sized(512, 512, name="tutorial"), {}),
        ("B33", "a compiled handle kept from the first launch", KEPT_HANDLE, sized(512, 512, name="handle"),
         {"n_correctness": 5}),
        ("B35", "inputs that fit into the L2 cache", RELU, sized(1024, 1024, name="cached"), {}),
        ("B36", "less work than a launch costs", RELU, sized(16, 16, name="little"), {}),
        ("B36", "ten small inputs", SUM_OF_TEN, SUMS, {}),
        ("B51", "offsets that a task promises in order", DIFFERENCES, OFFSETS, {}),
        ("B51", "lengths beside what they belong to, longest first", MASKED, LENGTHS, {}),
        ("B37", "a slow host", replaced(("    x = x.contiguous()\n",
         "    sum(range(30000))\n    x = x.contiguous()\n")),
         sized(512, 512, name="host"), {}),
        ("B38", "calls of milliseconds", MATMUL, product(1024, 2048, 1024), {}),
        ("B39", "PyTorch convolves, the kernel does the rest", HEAD + RELU_KERNEL + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 32, 3)
    def forward(self, x):
        return run(self.conv(x))
""", CONV, {"n_correctness": 5}),
        ("B39", "TF32 allowed by the candidate for itself", "import torch\ntorch.backends.cudnn.allow_tf32 = True\n"
         + RELU,
         sized(512, 512, name="flags"), {}),
        ("B40", "a reference that nobody has timed before", RELU, sized(777, 333, name="untimed"), {}),
        ("B41", "inputs of gigabytes", RELU, sized(400, 1000, 1000, name="gigabytes"), {"n_correctness": 3,
         "n_trials": 10}),
        ("B42", "a workspace for each call, given back at once", replaced(
            ("    x = x.contiguous()\n", "    work = torch.empty(1 << 26, device=x.device)\n    del work\n"
             "    torch.cuda.empty_cache()\n    x = x.contiguous()\n")), sized(512, 512, name="workspace"), {}),
        ("B48", "inputs moved to the GPU they are on", replaced(("    x = x.contiguous()\n",
         "    x = x.cuda().contiguous()\n")),
         sized(512, 512, name="moved"), {}),
        ("B48", "a device by name", HEAD + RELU_KERNEL.replace("torch.empty_like(x)",
         "torch.empty(x.shape, device='cuda:0')")
         + MODEL, sized(512, 512, name="named"), {}),
        ("B49", "a product of bfloat16", MATMUL, product(128, 512, 128, "bfloat16"), {}),
        ("B49", "libdevice", LIBDEVICE, task("torch.tanh(x)", "torch.randn(512, 512)", name="tanh"), {}),
        ("B49", "functions of Triton imported by name", replaced(
            ("tl.maximum(v, 0.0)", "maximum(v, 0.0)"), ("@triton.jit",
             "from triton.language import maximum\n\n@triton.jit")
        ), RELU_TASK, {}),
        ("B52", "rows scaled where the reference multiplies by a diagonal matrix", DIAGONAL,
         module_task("pass", "return torch.diag(d) @ x", "torch.randn(4096), torch.randn(4096, 4096)", "diagonal",
         "d, x"), {}),
        ("B53", "a sum by atomics of many blocks", replaced(
            ("tl.store(out_ptr + o, tl.maximum(v, 0.0), mask=m)", "tl.atomic_add(out_ptr + o % 64, v, mask=m)"),
            ("torch.empty_like(x)", "torch.zeros(64, device=x.device)"),
        ), task("x.view(-1, 64).sum(0)", "torch.randn(1024, 64)", name="atomics"), {"n_correctness": 5}),
    )
)  # fmt: skip
