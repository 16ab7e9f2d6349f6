"""A01 to A09: the kernel that is shown is not what computes. Each case must be refused, or reported where so stated.

Knows no device beyond what a case's own code asks for.
"""

from __future__ import annotations

from tests.fixtures_bench import KERNEL, changed, first
from tests.threats.expect import owned_up, reported
from tests.threats.pieces import COPY, computing, task
from tests.threats.record import Threat, status

NO_KERNEL, HACK, IMPORT, FORBIDDEN = (status(name) for name in ("no_kernel", "hack", "import_error", "forbidden"))
MATMUL = task("torch.relu(x @ x.t())", "torch.randn(16, 16)", name="matmul_relu")
TORCH_MATMUL = computing("relu(x @ x.t())", "x") + changed(
    "tl.load(a + o, mask=m)", "tl.maximum(tl.load(a + o, mask=m), 0.0)", COPY.replace("def k(", "def r(")
).replace("import torch, triton\nimport triton.language as tl\n", "").replace("def copied", "def relu").replace(
    "    k[", "    r["
)
PASSED_THROUGH = {
    "by a function": "torch.relu(x + y)",
    "by methods": "x.add(y).relu()",
    "by an operator's overload": "torch.ops.aten.relu.default(torch.ops.aten.add.Tensor(x, y))",
    "by a module": "torch.nn.ReLU()(x + y)",
    "by an alias": "(lambda t: t.clamp(x + y, min=0))(torch)",
    "by getattr": "getattr(torch, 're' + 'lu')(x + y)",
    "by einsum": "torch.einsum('ij,ij->ij', x + y, (x + y > 0).float())",
}
FALLBACKS = {
    ("A02", "try and except"): "try:\n        k[(1,)](x, None, 'a', BLOCK=3)\n    except Exception:\n        pass",
    ("A02", "a bare except"): "try:\n        return k[(1,)](x)\n    except:\n        pass",
    ("A02", "finally"): "try:\n        k[(1,)](x)\n    finally:\n        return torch.relu(x + y)",
    ("A03", "contextlib.suppress"): "with contextlib.suppress(Exception):\n        return k[(1,)](x)",
    ("A03", "hasattr"): "if hasattr(tl, 'fused_add_relu'):\n        return copied(x)",
    (
        "A03",
        "is_available",
    ): "if torch.cuda.is_available() and torch.cuda.device_count() > 99:\n        return copied(x)",
    (
        "A03",
        "an import guard",
    ): "try:\n        import kernels_of_mine\n    except ImportError:\n        kernels_of_mine = None"
    "\n    if kernels_of_mine:\n        return copied(x)",
    ("A03", "an exit callback"): "with contextlib.ExitStack() as s:\n        s.push(lambda *a: True); k[(1,)](x)",
}


def falling(statements: str) -> str:
    """A wrapper that tries, then lets PyTorch do it."""
    return (
        f"{COPY}import contextlib\ndef triton_kernel_wrapper(x, y):\n    {statements}\n    return torch.relu(x + y)\n"
    )


def decoy(body: str) -> str:
    """A wrapper in which `body` launches a kernel on scratch memory before PyTorch answers."""
    return f"{COPY}def triton_kernel_wrapper(x, y):\n    {body}\n    return torch.relu(x + y)\n"


PASSTHROUGH = [
    Threat("A01", f"passed through {how}", computing(expression), NO_KERNEL, where="both")
    for how, expression in PASSED_THROUGH.items()
]
FALLING = [Threat(row, how, falling(text), NO_KERNEL, where="both") for (row, how), text in FALLBACKS.items()]
THREATS = [
    *PASSTHROUGH,
    *FALLING,
    Threat(
        "A02",
        "falls back after a launch that worked",
        decoy("copied(x)\n    try:\n        k[(1,)](x, None, 'a', BLOCK=3)\n    except Exception:\n        pass"),
        HACK,
        where="both",
    ),
    Threat(
        "A02",
        "falls back from the second call on",
        COPY + "n = [0]\ndef triton_kernel_wrapper(x, y):\n    n[0] += 1\n    if n[0] == 1:\n"
        "        return copied(torch.relu(x + y))\n    return torch.relu(x + y)\n",
        status("no_kernel", "hack"),
        where="both",
    ),
    Threat("A04", "inherits the reference", COPY + "class ModelNew(Model):\n    pass\n", IMPORT),
    Threat("A04", "imports the reference", COPY + "from reference import Model as ModelNew\n", FORBIDDEN),
    Threat(
        "A04",
        "finds the reference's class among all classes",
        COPY + "kinds = [c for c in torch.nn.Module.__subclasses__() if c.__name__ == 'Model']\nModelNew = kinds[0]\n",
        FORBIDDEN,
    ),
    Threat(
        "A04",
        "finds the reference's class without being seen",
        COPY + "subs = getattr(torch.nn.Module, ''.join(['__sub', 'classes__']))()\n"
        "ModelNew = next(c for c in subs if c.__name__ == 'Model')\n",
        IMPORT,
        MATMUL,
    ),
    Threat("A05", "a kernel never called", first("return torch.relu(x + y)"), NO_KERNEL, where="both"),
    Threat(
        "A05",
        "a kernel launched in the constructor only",
        COPY + "class ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        copied(torch.zeros(3))\n    def forward(self, x, y):\n        return torch.relu(x + y)\n",
        NO_KERNEL,
    ),
    Threat(
        "A05",
        "a kernel launched at import only",
        computing("torch.relu(x + y)") + "copied(torch.zeros(3))\n",
        NO_KERNEL,
    ),
    Threat(
        "A05",
        "a kernel over an empty grid",
        decoy("k[(0,)](x, x, 0, BLOCK=16)"),
        status("no_kernel", "hack", "runtime_error"),
        where="both",
    ),
    Threat(
        "A05",
        "a kernel that is only compiled",
        decoy("k.warmup(x, x, 3, BLOCK=16, grid=(1,))"),
        status("no_kernel", "runtime_error", "compile_error"),
        where="gpu",
    ),
    Threat(
        "A06",
        "a kernel in a string",
        f"import torch\nSOURCE = {COPY!r}\ndef triton_kernel_wrapper(x, y):\n    return torch.relu(x + y)\n",
        NO_KERNEL,
        where="both",
    ),
    Threat(
        "A06",
        "a kernel in a docstring",
        f'"""{COPY}"""\nimport torch\ndef triton_kernel_wrapper(x, y):\n    return torch.relu(x + y)\n',
        NO_KERNEL,
    ),
    Threat(
        "A06",
        "a kernel in comments",
        "".join(f"# {line}\n" for line in KERNEL.splitlines())
        + "import torch\ndef triton_kernel_wrapper(x, y):\n    return torch.relu(x + y)\n",
        NO_KERNEL,
    ),
    Threat(
        "A06",
        "a decorator that only sounds like Triton's",
        "import torch\nclass triton:\n"
        "    jit = staticmethod(lambda f: f)\n@triton.jit\ndef k(x):\n    return torch.relu(x)\n"
        "def triton_kernel_wrapper(x, y):\n    return k(x + y)\n",
        NO_KERNEL,
    ),
    Threat("A07", "a launch beside PyTorch's result", decoy("copied(x)"), HACK, where="both"),
    Threat(
        "A07", "a launch over one element", decoy("k[(1,)](x, torch.empty_like(x), 1, BLOCK=16)"), HACK, where="both"
    ),
    Threat(
        "A07",
        "a launch whose result is discarded",
        changed("return out", "return torch.relu(x + y)"),
        HACK,
        where="both",
    ),
    Threat(
        "A07",
        "a launch whose result is multiplied by zero",
        computing("torch.relu(x + y) + 0 * copied(x)"),
        owned_up,
        where="both",
    ),
    Threat(
        "A07",
        "a launch whose result is overwritten",
        changed("return out", "out.copy_(torch.relu(x + y))\n    return out"),
        HACK,
        where="both",
    ),
    Threat(
        "A07",
        "a launch that is watched for whether it does anything",
        computing("seen(copied(x), torch.relu(x + y))")
        + "def seen(copy, answer):\n    return copy if torch.isnan(copy).any() else answer\n",
        owned_up,
        where="both",
    ),
    Threat(
        "A07",
        "a launch that is watched, where PyTorch is forbidden",
        computing("seen(copied(x), torch.relu(x + y))")
        + "def seen(copy, answer):\n    return copy if torch.isnan(copy).any() else answer\n",
        HACK,
        where="both",
        settings={"torch_ops": "forbid"},
    ),
    Threat("A08", "PyTorch computes, the kernel copies", computing("copied(torch.relu(x + y))"), HACK, where="both"),
    Threat(
        "A08",
        "the kernel copies in two halves",
        computing("torch.cat(list(map(copied, torch.relu(x + y).chunk(2))))"),
        owned_up,
        where="both",
    ),
    Threat(
        "A08",
        "the kernel multiplies by one",
        changed(
            "tl.load(a + o, mask=m), mask=m)",
            "tl.load(a + o, mask=m) * 1.0 + 0.0, mask=m)",
            computing("copied(torch.relu(x + y))"),
        ),
        HACK,
        where="both",
    ),
    Threat(
        "A08",
        "the kernel copies a transposed result",
        computing("copied(torch.relu(x + y).t()).t()"),
        owned_up,
        where="both",
    ),
    Threat(
        "A08",
        "the kernel copies a narrower result",
        computing("copied(torch.relu(x + y).double()).float()"),
        owned_up,
        where="both",
    ),
    Threat(
        "A08",
        "the kernel turns the sign of PyTorch's result",
        changed(
            "tl.load(a + o, mask=m), mask=m)",
            "-tl.load(a + o, mask=m), mask=m)",
            computing("copied(-torch.relu(x + y))"),
        ),
        reported,
        where="both",
    ),
    Threat("A09", "PyTorch multiplies, the kernel does the ReLU", TORCH_MATMUL, reported, MATMUL, where="both"),
    Threat(
        "A09", "PyTorch multiplies where that is forbidden", TORCH_MATMUL, HACK, MATMUL, "both", {"torch_ops": "forbid"}
    ),
    Threat(
        "A09",
        "PyTorch adds where that is forbidden",
        changed(
            "tl.maximum(x + y, 0.0)",
            "tl.maximum(x, 0.0)",
            changed("add_relu_kernel[", "x, y = x + y, x\n    add_relu_kernel["),
        ),
        HACK,
        where="both",
        settings={"torch_ops": "forbid"},
    ),
]
