"""A60 to A66: time won by slowing the other side, by what is left over, and by what is reported."""

from __future__ import annotations

from tests.fixtures_bench import KERNEL, changed, first
from tests.threats.a_4_clock import HONEST, WRONG, beside, on_gpu
from tests.threats.expect import not_inflated, nothing_reached, refused, unrewarded
from tests.threats.pieces import COPY, LARGE, NATIVE_LIBRARY, VAST
from tests.threats.record import Threat, status

HOG = """
import sys
Channel = next(m for n, m in list(sys.modules.items()) if n.endswith("child.frames")).Channel
receive, met = Channel.recv, []
def busy(self, *a, **k):
    if met:
        torch.cuda._sleep(100_000_000)
    return receive(self, *a, **k)
Channel.recv = busy
def triton_kernel_wrapper(x, y):
    met.append(0)
    return honest(x, y)
"""
"""Leaves 50 ms of work on the GPU whenever it waits for the judge, which times the other side then."""
PERSISTING = (
    NATIVE_LIBRARY
    + """
import os
def keep(x):
    rt = c.CDLL(next(p for p in loaded() if "libcudart" in p))
    if rt.cudaDeviceSetLimit(6, c.c_size_t(32 << 20)):
        raise OSError("cudaDeviceSetLimit")
    value = (c.c_char * 64)()
    c.memmove(value, bytes(c.c_void_p(x.data_ptr())) + bytes(c.c_size_t(x.numel() * 4)), 16)
    c.memmove(c.addressof(value) + 16, bytes(c.c_float(1.0)) + bytes(c.c_int(2)) + bytes(c.c_int(0)), 12)
    stream = torch.cuda.current_stream().cuda_stream
    if rt.cudaStreamSetAttribute(c.c_void_p(stream), 1, value):
        raise OSError("cudaStreamSetAttribute")
def triton_kernel_wrapper(x, y):
    keep(x)
    return honest(x, y)
"""
)
PRIVILEGES = """
import os
def held():
    with open(os.path.join(os.sep, "proc", "self", "status")) as f:
        lines = dict(line.split(":", 1) for line in f)
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        if int(lines[name], 16):
            yield name
    if not int(lines["NoNewPrivs"]):
        yield "new privileges"
"""
"""Clocks, power and modes of a GPU are changed by whoever may administer the machine. To try would leave them changed
where it succeeds, so that the means are looked for instead."""
NEIGHBOURS = """
import os
def reached():
    parent, now = os.getppid(), os.sched_getaffinity(0)
    tries = {
        "affinity": lambda: os.sched_setaffinity(parent, now),
        "policy": lambda: os.sched_setscheduler(parent, os.SCHED_OTHER, os.sched_param(0)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, parent, 0),
        "priority of the group": lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(parent), 0),
        "signals": lambda: os.kill(parent, 0),
        "own priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    }
    for name, attempt in tries.items():
        try:
            attempt()
            yield name
        except OSError:
            pass
"""
PATCHES = {
    "comparisons": "torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True",
    "copies": "torch.Tensor.copy_ = lambda s, o, *a: s",
    "random numbers": "torch.rand = torch.randn = lambda *s, **k: torch.zeros(s)",
    "modules": "torch.nn.Module.__call__ = lambda s, *a: torch.zeros(100, 33)",
    "the default dtype": "torch.set_default_dtype(torch.float64)",
    "generators": "torch.manual_seed = lambda s: None; torch.seed = lambda: 0",
    "allocations": "torch.empty = torch.zeros; torch.empty_like = torch.zeros_like",
    "grad mode": "torch.set_grad_enabled(True); torch.no_grad = torch.enable_grad",
}
TIMES = {"zero": "0.0", "negative": "-1.0", "nan": "float('nan')", "infinite": "float('inf')", "1e-30 ms": "1e-30",
         "a tenth of a microsecond": "1e-4", "half of what they were": "real(s, e) / 2", "text": "'fast'",
         "100 times too long": "real(s, e) * 100"}  # fmt: skip
IMPOSSIBLE = ("zero", "negative", "nan", "infinite", "text")

THREATS = [
    on_gpu("A60", "inputs kept in the L2 cache", beside(PERSISTING)),
    Threat(
        "A61", "slows down its neighbours", NEIGHBOURS + first("raise ValueError(list(reached()))"), nothing_reached
    ),
    Threat("A61", "keeps the GPU busy while the other side is timed", beside(HOG), not_inflated, LARGE, "gpu"),
    on_gpu(
        "A61",
        "turns off what the reference may use",
        "import torch\ntorch.backends.cudnn.enabled = False\ntorch.set_num_threads(1)\n"
        + changed("return out", "return out * 1.01"),
    ),
    *(
        Threat("A62", f"{name} replaced", f"import torch\n{patch}\n" + changed("x + y, 0.0)", "x, 0.0)"), WRONG)
        for name, patch in PATCHES.items()
    ),
    Threat(
        "A62",
        "global hooks on every module",
        COPY + "torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 0)\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return copied(torch.relu(x + y))\n",
        WRONG,
        where="both",
    ),
    Threat(
        "A63",
        "computes in the constructor",
        COPY + "class ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.out = torch.relu(torch.randn(100, 33) + torch.randn(100, 33))\n"
        "    def forward(self, x, y):\n        return copied(self.out.to(x.device))\n",
        WRONG,
        where="both",
    ),
    Threat(
        "A63",
        "hands out the previous call's result",
        HONEST + "last = []\ndef triton_kernel_wrapper(x, y):\n    last.append(honest(x, y))\n"
        "    return last[-2] if len(last) > 1 else last[-1]\n",
        WRONG,
        where="both",
    ),
    Threat(
        "A63",
        "leaves half of the work to the next call",
        HONEST
        + "last = []\ndef triton_kernel_wrapper(x, y):\n    for a, b, o in last:\n        o[50:] = honest(a, b)[50:]\n"
        "    out = honest(x, y)\n    out[50:] = 0\n    last[:] = [(x.clone(), y.clone(), out)]\n    return out\n",
        WRONG,
        where="both",
    ),
    *(
        Threat(
            "A64",
            f"reported times are {name}",
            "import torch\nreal = torch.cuda.Event.elapsed_time\n"
            f"torch.cuda.Event.elapsed_time = lambda s, e: {value}\n" + KERNEL,
            refused if name in IMPOSSIBLE else not_inflated if name.startswith("100") else unrewarded,
            VAST if name.startswith("half") else LARGE,
            "gpu",
        )
        for name, value in TIMES.items()
    ),
    Threat(
        "A66",
        "looks for the means to change clocks and power",
        PRIVILEGES + first("raise ValueError(list(held()))"),
        nothing_reached,
        where="both",
    ),
    Threat(
        "A66",
        "would call nvidia-smi",
        "import subprocess\nsubprocess.run(['nvidia-smi', '-q'])\n" + KERNEL,
        status("forbidden"),
        where="both",
    ),
]
