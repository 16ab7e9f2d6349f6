"""Pieces that candidates of both suites are made of, and small tasks for them. Judges nothing."""

from __future__ import annotations

from kb_ray.records import Task, TensorSpec
from tests.fixtures_bench import ADD_RELU, first

COPY = """
import torch, triton
import triton.language as tl

@triton.jit
def k(a, b, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(b + o, tl.load(a + o, mask=m), mask=m)

def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    k[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y

"""
"""A kernel that copies, and `copied(x)`, which launches it."""

NATIVE_LIBRARY = """
import numpy.ctypeslib as ctypeslib
c = ctypeslib.ctypes
libc = c.CDLL(None, use_errno=True)
def loaded():
    import os
    with open(os.path.join(os.sep, "proc", "self", "maps")) as f:
        return sorted({line.split()[-1] for line in f if ".so" in line})
"""
"""ctypes by a way that the static rules do not see, as `c`, and `loaded()`: paths of the libraries in memory."""

FORGING = """
import os, stat, struct, sys, threading, time

def part(end):
    return next(m for n, m in list(sys.modules.items()) if n.endswith(end))

def sock():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                return fd
        except OSError:
            pass

def send(kind, payload):
    os.write(sock(), struct.pack("<IBHQ", 0x6B625231, kind, 0, len(payload)) + payload)

def done(**fields):
    send(40, part("child.message").pack(launches={"add_relu_kernel": 1}, **fields))

def raised(**fields):
    send(41, part("child.message").pack(**fields))

V = part("child.values")
REF = V.TensorRef(0, "float32", (100, 33))
"""
"""A candidate that speaks the judge's own language: `done` and `raised` send answers in its process's name."""

POISONED = """
def poisoned(x):
    torch.zeros(7, device=x.device)
    return bool(torch.isnan(torch.empty(7, device=x.device)).all())
"""
"""`poisoned(x)`: whether fresh memory is filled with NaN, as it is in checked calls and not in timed ones."""
LARGE = ADD_RELU.model_copy(update={"input_shapes": {name: TensorSpec(shape=(4096, 1024)) for name in ("x", "y")}})
VAST = ADD_RELU.model_copy(update={"input_shapes": {name: TensorSpec(shape=(32768, 8192)) for name in ("x", "y")}})
"""Takes most of a millisecond: long enough for a clock outside of the process."""
"""A task for a GPU whose kernels last long enough to be timed by what they do: 16 MiB for each tensor."""


def computing(expression: str, arguments: str = "x, y") -> str:
    """A candidate whose wrapper returns `expression`, which may use `copied`: PyTorch computes, the kernel copies."""
    return f"{COPY}def triton_kernel_wrapper({arguments}):\n    return {expression}\n"


def forged(statement: str) -> str:
    """A candidate whose first call answers the judge by itself."""
    return FORGING + first(f"{statement}; time.sleep(1)")


def task(expression: str, inputs: str = "torch.rand(8, 64)", init: str = "pass", name: str = "t") -> Task:
    """A `Model` with `init` in its constructor whose forward returns `expression` of x, drawn as `inputs`."""
    code = (
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, x):\n        return {expression}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )
    return Task(
        task_id=f"folder/{name}", source="folder", name=name, style="module", entry_point="Model", reference_code=code
    )
