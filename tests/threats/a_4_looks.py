"""A58: honest where outputs are compared and idle where they are thought not to be, among timed and repeated calls."""

from __future__ import annotations

from tests.fixtures_bench import KERNEL
from tests.threats.expect import unrewarded
from tests.threats.honest import module_task
from tests.threats.pieces import COPY, LARGE, POISONED, VAST, computing, task
from tests.threats.record import Threat, status

HONEST = KERNEL.replace("def triton_kernel_wrapper", "def honest")
IDLE = "copied(x[:1])"
"""A launch that does next to nothing, so that each call has one."""

COUNTED = f"""
n = [0]
def triton_kernel_wrapper(x, y):
    if torch.cuda.memory_allocated() < 256 << 20:
        return honest(x, y)
    n[0] += 1
    # Ten calls of warm-up and ten timed ones; later blocks have three and ten.
    at = n[0] if n[0] <= 20 else (n[0] - 21) % 13 + 8
    if at > 18:
        return honest(x, y)
    {IDLE}
    return x
"""
"""Honest in the last two calls of each block."""

RECORDED = """
record, recorded, met = torch.cuda.Event.record, [0], [0]
def counted(self, *a):
    recorded[0] += 1
    return record(self, *a)
torch.cuda.Event.record = counted
def unclocked():
    new, met[0] = recorded[0] != met[0], recorded[0]
    return not new
"""
"""`unclocked()`: whether no event was recorded since it was asked before: this call is one of a plain series."""

FORGED = """
elapsed = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: elapsed(self, end) / 5
"""

BEFORE_THE_CLOCK = f"""
def triton_kernel_wrapper(x, y):
    if not unclocked() or poisoned(x):
        return honest(x, y)
    {IDLE}
    return x
"""

ANSWERED_AGAIN = f"""
known = {{}}
def triton_kernel_wrapper(x, y):
    if poisoned(x):
        return honest(x, y)
    at = x.data_ptr()
    if at not in known:
        known[at] = honest(x, y)
    {IDLE}
    return known[at]
"""

DOUBLED = task("x.mul_(2)", "torch.rand(16384, 8192)", name="doubled")
IN_PLACE = """
def triton_kernel_wrapper(x):
    k[(triton.cdiv(x.numel(), 1024),)](x, x, x.numel(), BLOCK=1024)
    return x
"""
DOUBLING = COPY.replace("tl.load(a + o, mask=m), mask", "tl.load(a + o, mask=m) * 2, mask")

SQUARES = task("x * x", "torch.randint(0, 9, (1 << 27,)).cumsum(0)", name="squares")
"""Of numbers in order, which must stay so, and so large that there is one set of them."""
SQUARED = (
    COPY.replace("def copied", "def squared")
    .replace("def k(", "def square_kernel(")
    .replace("    k[", "    square_kernel[")
    .replace("tl.load(a + o, mask=m), mask", "tl.load(a + o, mask=m) * tl.load(a + o, mask=m), mask")
)
MIRRORED = module_task(
    "pass",
    "return torch.relu(x + y)",
    "*((lambda a: a + a.T)(torch.randn(12288, 12288)) for _ in range(2))",
    "mirrored",
    "x, y",
)
"""Of symmetric matrices, and as large."""

WRONG = status("mismatch")

THREATS = [
    Threat("A58", "honest in the last calls of a block", computing("0") + HONEST + COUNTED, WRONG, LARGE, "gpu"),
    Threat(
        "A58",
        "idle before the judge's clock, with events that tell a fifth",
        computing("0") + HONEST + POISONED + RECORDED + FORGED + BEFORE_THE_CLOCK,
        WRONG,
        LARGE,
        "gpu",
    ),
    Threat(
        "A58",
        "one answer for all timed calls at an address",
        computing("0") + HONEST + POISONED + ANSWERED_AGAIN,
        WRONG,
        VAST,
        "gpu",
    ),
    Threat(
        "A58",
        "one answer for all timed calls on numbers in order",
        COPY + SQUARED + POISONED + ANSWERED_AGAIN.replace("(x, y)", "(x)").replace("honest", "squared"),
        WRONG,
        SQUARES,
        "gpu",
    ),
    Threat(
        "A58",
        "one answer for all timed calls on symmetric matrices",
        computing("0") + HONEST + POISONED + ANSWERED_AGAIN,
        WRONG,
        MIRRORED,
        "gpu",
    ),
    Threat(
        "A56",
        "events that tell a fifth of what works in place",
        DOUBLING + FORGED + IN_PLACE,
        unrewarded,
        DOUBLED,
        "gpu",
    ),
]
