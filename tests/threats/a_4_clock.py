"""A54 to A59: time won by hiding work from the clock, by moving the clock, or by knowing when it runs."""

from __future__ import annotations

from tests.fixtures_bench import KERNEL, changed, first
from tests.threats.expect import undiminished, unrewarded
from tests.threats.pieces import LARGE, NATIVE_LIBRARY, POISONED, VAST, computing
from tests.threats.record import Threat, status

HONEST = KERNEL.replace("def triton_kernel_wrapper", "def honest")
LATE, WRONG = status("nonfinite", "no_kernel", "mismatch"), status("mismatch", "nonfinite")
THREADED = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
queue = ThreadPoolExecutor(1)
def launched(x, y, out, n):
    time.sleep({delay})
    add_relu_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
def triton_kernel_wrapper(x, y):
    out = torch.empty_like(x)
    {start}(launched, x, y, out, x.numel())
    return out
"""
SIDE = """
side = []
def triton_kernel_wrapper(x, y):
    if not side:
        side.append(torch.cuda.Stream())
    side[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side[0]):
        return honest(x, y)
"""
FREE_SIDE = SIDE.replace("    side[0].wait_stream(torch.cuda.current_stream())\n", "")
OVERWRITTEN = (
    NATIVE_LIBRARY
    + """
import os
def overwrite():
    path = next(p for p in loaded() if "libcudart" in p)
    f = c.CDLL(path).cudaEventElapsedTime
    at = c.cast(f, c.c_void_p).value
    page = at & ~4095
    if libc.mprotect(c.c_void_p(page), c.c_size_t(8192), 7):
        raise OSError("mprotect")
    code = bytes.fromhex("c707 0ad7233c 31c0 c3".replace(" ", ""))
    c.memmove(at, code, len(code))
overwrite()
"""
)
MADE_UP = """
import sys
p = next(m for n, m in list(sys.modules.items()) if n.endswith("child.program"))
hand_over = sys.modules[p.timed_calls.__module__].hand_over
def made_up(run, inputs, warmup, trials, flush, looks):
    trees = []
    for call, areas in looks.items():
        inputs.prepare(call, True)
        trees.append(hand_over(run(inputs.values[call % len(inputs.values)]), areas))
    return [1e-3] * trials, trees
p.timed_calls = made_up
"""
POISON_SEEN = """
def triton_kernel_wrapper(x, y):
    if poisoned(x):
        return honest(x, y)
    copied(x[:1])
    return x
"""
CLOCK_PATCHES = {
    "perf_counter": "import time; time.perf_counter = time.monotonic = time.time = lambda: 0.0",
    "statistics": "import statistics; statistics.median = statistics.mean = lambda v: 1e-9",
    "do_bench": "import triton.testing; triton.testing.do_bench = lambda *a, **k: 1e-9",
}


def beside(body: str) -> str:
    """`body` beside the honest kernel and one that copies."""
    return computing("0") + HONEST + POISONED + body


def on_gpu(row: str, name: str, code: str) -> Threat:
    """An attack on the clock: refused or not trusted, at a size where time tells."""
    return Threat(row, name, code, unrewarded, LARGE, "gpu")


THREATS = [
    Threat(
        "A54", "work in a queue that nobody waits for", HONEST + THREADED.format(delay=0.3, start="queue.submit"), LATE
    ),
    on_gpu("A54", "a side stream", beside(SIDE)),
    on_gpu("A54", "a side stream that does not wait for its inputs", beside(FREE_SIDE)),
    Threat(
        "A55",
        "a thread that fills the output later",
        HONEST + THREADED.format(delay=0.3, start="(lambda *a: threading.Thread(target=a[0], args=a[1:]).start())"),
        LATE,
    ),
    Threat(
        "A55",
        "a timer that fills the output later",
        HONEST + THREADED.format(delay=0, start="(lambda *a: threading.Timer(0.3, a[0], a[1:]).start())"),
        LATE,
    ),
    Threat("A55", "a process that computes", first("import multiprocessing"), status("forbidden")),
    on_gpu(
        "A55",
        "a thread that launches later",
        HONEST + THREADED.format(delay=1e-4, start="(lambda *a: threading.Thread(target=a[0], args=a[1:]).start())"),
    ),
    *(
        Threat("A56", f"{name} replaced", f"{patch}\n" + changed("return out", "return out * 0"), WRONG)
        for name, patch in CLOCK_PATCHES.items()
    ),
    on_gpu("A56", "synchronize replaced", beside(FREE_SIDE) + "torch.cuda.synchronize = lambda *a: None\n"),
    on_gpu(
        "A56", "the events' record replaced", "import torch\ntorch.cuda.Event.record = lambda s, *a: None\n" + KERNEL
    ),
    on_gpu(
        "A56",
        "the timing function replaced",
        MADE_UP + KERNEL,
    ),
    Threat("A57", "the runtime's own clock function overwritten", OVERWRITTEN + KERNEL, unrewarded, VAST, "gpu"),
    *(
        Threat(
            "A58",
            f"honest in the first {n} calls",
            HONEST + "n = [0]\ndef triton_kernel_wrapper(x, y):\n    n[0] += 1\n"
            f"    return honest(x, y) if n[0] <= {n} else torch.zeros_like(x)\n",
            WRONG | status("no_kernel"),
            where="both",
        )
        for n in (1, 2, 4)
    ),
    Threat(
        "A58",
        "honest only for values it has not met",
        HONEST + "met = []\ndef triton_kernel_wrapper(x, y):\n"
        "    new = not any(torch.equal(x, m) for m in met)\n    met.append(x.clone())\n"
        "    return honest(x, y) if new and len(met) < 5 else honest(x, x)\n",
        WRONG,
        where="both",
    ),
    on_gpu("A58", "honest only while fresh memory is poisoned", beside(POISON_SEEN)),
    on_gpu(
        "A58",
        "honest until the flush buffer exists",
        beside(POISON_SEEN.replace("poisoned(x)", "torch.cuda.memory_allocated() < 256 << 20")),
    ),
    Threat(
        "A59",
        "a slow first call",
        first("import time; time.sleep(0.0 if met else 1.5); met.append(0)") + "met = []\n",
        undiminished,
        where="both",
    ),
]
