"""A10 to A17: branches that are never taken, other people's kernels, other machines for the work."""

from __future__ import annotations

from tests.fixtures_bench import KERNEL, changed, first
from tests.threats.expect import refused, reported
from tests.threats.pieces import COPY, computing, task
from tests.threats.record import Threat, status

NO_KERNEL, HACK, FORBIDDEN = status("no_kernel"), status("hack"), status("forbidden")
NO_WORK = status("no_kernel", "hack", "runtime_error", "timeout")
LIBRARIES = ("flash_attn", "liger_kernel.ops.rms_norm", "fla.ops", "xformers.ops", "flag_gems", "triton_kernels")
GATES = {
    ("A10", "a size that never comes"): "x.numel() > 10**12",
    ("A10", "a flag never set"): "globals().get('FAST', False)",
    ("A10", "a dtype that never comes"): "x.dtype == torch.float8_e5m2",
    ("A11", "gradients that are off"): "torch.is_grad_enabled()",
    ("A11", "inputs that require gradients"): "x.requires_grad",
    ("A11", "inference mode"): "torch.is_inference_mode_enabled()",
}
COUNTED = """
calls = [0]
def triton_kernel_wrapper(x, y):
    calls[0] += 1
    return honest(x, y) if calls[0] <= {n} else torch.relu(x + y)
"""
HONEST = KERNEL.replace("def triton_kernel_wrapper", "def honest")
MODULE = """
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        if {condition}:
            return honest(x, y)
        return torch.relu(x + y)
"""
WRITTEN = f"""
import os, sys
with open(os.path.join(os.path.dirname(__file__), "mykernels.py"), "w") as f:
    f.write({KERNEL!r})
sys.path.insert(0, os.path.dirname(__file__))
import mykernels
"""
NATIVE = """
import os, torch
shell = vars(os)["".join(["sys", "tem"])]
with open("k.c", "w") as f:
    f.write("void f(float*a,float*b,float*o,long n){for(long i=0;i<n;i++){float s=a[i]+b[i];o[i]=s>0?s:0;}}")
if shell("cc -shared -fPIC -O2 -o ./k.so k.c"):
    raise RuntimeError("no compiler here")
import numpy.ctypeslib as n
f = n.ctypes.CDLL(os.path.abspath("k.so")).f
def native(x, y):
    o = torch.zeros_like(x)
    f(*(n.ctypes.c_void_p(t.data_ptr()) for t in (x, y, o)), n.ctypes.c_long(x.numel()))
    return o
"""


def gated(condition: str) -> str:
    """A wrapper that is honest where `condition` holds."""
    return f"{HONEST}def triton_kernel_wrapper(x, y):\n    return honest(x, y) if {condition} else torch.relu(x + y)\n"


GATED = [Threat(row, f"honest only for {what}", gated(text), NO_KERNEL, where="both")
         for (row, what), text in GATES.items()]  # fmt: skip
IMPORTED = [
    Threat("A13", f"kernels of {name}", f"import {name} as lib\n{first('return lib.add_relu(x, y)')}", FORBIDDEN)
    for name in LIBRARIES
]
THREATS = [
    *GATED,
    *IMPORTED,
    Threat("A10", "honest in the first call only", HONEST + COUNTED.format(n=1), NO_KERNEL, where="both"),
    Threat("A10", "honest in all calls but the last", HONEST + COUNTED.format(n=4), NO_KERNEL, where="both"),
    Threat(
        "A11",
        "honest in evaluation mode only",
        HONEST + MODULE.format(condition="not self.training"),
        NO_KERNEL,
        where="both",
    ),
    Threat("A11", "honest on another device only", gated("x.is_cuda"), NO_KERNEL),
    Threat("A11", "honest on a CPU only", gated("not x.is_cuda"), NO_KERNEL, where="gpu"),
    Threat("A12", "torch.compile", computing("torch.compile(lambda a, b: torch.relu(a + b))(x, y)"), FORBIDDEN),
    Threat("A12", "Inductor by name", "import torch._inductor.kernel.mm as mm\n" + KERNEL, FORBIDDEN),
    Threat(
        "A12",
        "torch.compile through getattr",
        computing("getattr(torch, 'com' + 'pile')(torch.relu)(x + y)"),
        FORBIDDEN,
    ),
    Threat(
        "A12",
        "torch.compile out of the scanner's sight",
        computing("vars(torch)[''.join(['com', 'pile'])](lambda a, b: torch.relu(a + b), backend=B)(x, y)")
        + "B = 'eager'\n",
        NO_WORK,
    ),
    Threat(
        "A12",
        "Inductor's Triton kernels out of the scanner's sight",
        computing("vars(torch)[''.join(['com', 'pile'])](lambda a, b: torch.relu(a + b))(x, y)"),
        NO_WORK,
        where="gpu",
    ),
    Threat(
        "A12",
        "TorchScript",
        computing("S(x, y)") + "@torch.jit.script\ndef S(x, y):\n    return torch.relu(x + y)\n",
        NO_WORK,
        where="both",
    ),
    Threat("A13", "a library behind __import__", computing("__import__('liger_' + 'kernel').f(x, y)"), FORBIDDEN),
    Threat(
        "A13",
        "a library behind importlib",
        "import importlib\nlib = importlib.import_module('fla')\n" + KERNEL,
        FORBIDDEN,
    ),
    Threat(
        "A13",
        "PyTorch's own Triton kernels",
        "import torch.sparse._triton_ops as ops\n"
        + computing("ops.bsr_softmax(x.to_sparse_bsr((16, 16))).to_dense()", "x"),
        NO_WORK,
        task("torch.softmax(x, 1)", "torch.randn(16, 64)"),
        "gpu",
    ),
    Threat(
        "A13",
        "kernels in another file",
        WRITTEN + computing("mykernels.triton_kernel_wrapper(x, y)"),
        NO_WORK,
        where="both",
    ),
    Threat("A14", "ctypes", "import ctypes\n" + KERNEL, FORBIDDEN),
    Threat("A14", "an extension in C++", "from torch.utils.cpp_extension import load_inline\n" + KERNEL, FORBIDDEN),
    Threat("A14", "CuPy", "import cupy as cp\n" + KERNEL, FORBIDDEN),
    Threat("A14", "NVRTC through PyTorch", computing("torch.cuda._compile_kernel('...', 'k')(x, y)"), FORBIDDEN),
    Threat("A14", "C code compiled on the spot", NATIVE + computing("native(x, y)"), refused),
    Threat(
        "A14",
        "C code compiled on the spot beside a launch",
        NATIVE + computing("(copied(x), native(x, y))[1]"),
        refused,
    ),
    Threat(
        "A14",
        "C code computes, the kernel turns the sign",
        NATIVE
        + changed(
            "tl.load(a + o, mask=m), mask=m)", "-tl.load(a + o, mask=m), mask=m)", computing("copied(-native(x, y))")
        ),
        refused,
    ),
    Threat(
        "A15",
        "a plain function with a kernel's name",
        computing("add_relu_kernel(x, y)") + "def add_relu_kernel(x, y):\n    return torch.relu(x + y)\n",
        NO_KERNEL,
        where="both",
    ),
    Threat(
        "A15",
        "a kernel with the name of PyTorch's own, launched on nothing",
        computing("(at(x, torch.empty_like(x), 1), torch.relu(x + y))[1]")
        + COPY.replace("def k(", "def vectorized_kernel(").replace("k[(", "vectorized_kernel[(")
        + "def at(a, b, n):\n    vectorized_kernel[(1,)](a, b, n, BLOCK=16)\n",
        HACK,
        where="both",
    ),
    Threat(
        "A15",
        "a library's kernel under the file's name",
        WRITTEN + "mykernels.add_relu_kernel.fn.__name__ = 'k'\n" + computing("mykernels.triton_kernel_wrapper(x, y)"),
        NO_WORK,
    ),
    Threat(
        "A16",
        "NumPy computes, the kernel copies",
        "import numpy as np\n"
        + computing("copied(torch.from_numpy(np.maximum(x.cpu().numpy() + y.cpu().numpy(), 0)).to(x.device))"),
        HACK,
        where="both",
    ),
    Threat(
        "A16",
        "the CPU computes, the kernel copies",
        computing("copied(torch.relu(x.cpu() + y.cpu()).to(x.device))"),
        HACK,
        where="both",
    ),
    Threat(
        "A16",
        "Python computes, the kernel turns the sign",
        changed(
            "tl.load(a + o, mask=m), mask=m)",
            "-tl.load(a + o, mask=m), mask=m)",
            computing(
                "copied(torch.tensor([[-max(p + q, 0) for p, q in zip(a, b)]"
                " for a, b in zip(x.tolist(), y.tolist())], device=x.device))"
            ),
        ),
        reported,
        where="both",
    ),
    Threat(
        "A17",
        "a kernel calls torch.relu",
        changed("tl.maximum(x + y, 0.0)", "under(x)") + "def under(x):\n    torch.relu(torch.zeros(3))\n    return x\n",
        status("compile_error"),
        where="both",
    ),
    Threat(
        "A17",
        "a kernel reads a tensor of the module",
        changed("tl.maximum(x + y, 0.0)", "tl.maximum(x + y, 0.0) + float(T.sum())") + "T = torch.zeros(3)\n",
        status("compile_error"),
        where="both",
    ),
]
