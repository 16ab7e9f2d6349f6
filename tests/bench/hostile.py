"""Pieces of hostile and of cheap candidates, and small tasks for them."""

from __future__ import annotations

from kb_ray.records import Task
from tests.fixtures_bench import first

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


def forged(statement: str) -> str:
    """A candidate whose first call answers the judge by itself."""
    return FORGING + first(f"{statement}; time.sleep(1)")


def computing(expression: str, arguments: str = "x, y") -> str:
    """A candidate whose kernel only copies what PyTorch computed."""
    return f"{COPY}def triton_kernel_wrapper({arguments}):\n    return {expression}\n"


def task(expression: str, inputs: str = "torch.rand(8, 16384)") -> Task:
    code = (
        f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {expression}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )
    return Task(
        task_id="folder/t", source="folder", name="t", style="module", entry_point="Model", reference_code=code
    )  # fmt: skip
