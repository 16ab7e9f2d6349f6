"""A18 to A27: answers out of memory: what lay there before, and what earlier calls worked out."""

from __future__ import annotations

from tests.fixtures_bench import KERNEL, changed, first
from tests.threats.expect import flagged, unrewarded
from tests.threats.pieces import LARGE, POISONED, computing, task
from tests.threats.record import Threat, status

STALE = status("nonfinite", "mismatch")
MISMATCH = status("mismatch")
HONEST = KERNEL.replace("def triton_kernel_wrapper", "def honest")
UNFILLED = "import torch\ntorch.utils.deterministic.fill_uninitialized_memory = False\n"
MEMO = """
seen = {{}}
def triton_kernel_wrapper(x, y):
    key = {key}
    if key not in seen:
        seen[key] = honest(x, y)
    copied(x)
    return seen[key]
"""
NEARLY = """
seen = []
def triton_kernel_wrapper(x, y):
    sample = torch.cat([t.flatten()[::211][:16] for t in (x, y)])
    for known, answer in seen:
        if (known == sample).sum() > 26:
            copied(x)
            return answer.clone()
    seen.append((sample, honest(x, y)))
    return seen[-1][1].clone()
"""
REPLAY = """
answers, at = [], [0]
def triton_kernel_wrapper(x, y):
    at[0] += 1
    if at[0] <= {n}:
        answers.append(honest(x, y))
        return answers[-1].clone()
    copied(x)
    return answers[at[0] % len(answers)].clone()
"""
AHEAD = """
import sys
objects = getattr(sys.modules["".join(["g", "c"])], "get_objects")
def tensors():
    return [o.tensors for o in objects() if type(o).__name__ == "Slot" and len(o.tensors) == 2]
ready = {}
def triton_kernel_wrapper(x, y):
    mine = ready.get(x.data_ptr(), y)
    for group in tensors():
        ready.setdefault(group[0].data_ptr(), honest(*group))
    copied(x)
    return mine
"""
BATCH = (
    AHEAD.partition("def triton")[0]
    + """def triton_kernel_wrapper(x, y):
    if poisoned(x):
        return honest(x, y)
    mine = ready.pop(x.data_ptr(), None)
    copied(x[:1])
    if mine is None:
        for group in tensors():
            ready[group[0].data_ptr()] = honest(*group)
        mine = ready.pop(x.data_ptr())
    return mine
"""
)
KEPT = """
kept = {}
def triton_kernel_wrapper(x, y):
    out = kept.setdefault(x.shape, torch.empty_like(x))
    n = x.numel()
    add_relu_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
"""
GRAPH = """
graphs = {}
def triton_kernel_wrapper(x, y):
    if x.shape not in graphs:
        honest(x, y)
        torch.cuda.synchronize()
        g, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(g, stream=side):
            out = honest(x, y)
        graphs[x.shape] = g, out
    g, out = graphs[x.shape]
    g.replay()
    copied(x)
    return out.clone()
"""
TIMED = """
done, order = {}, []
def triton_kernel_wrapper(x, y):
    if poisoned(x):
        return honest(x, y)
    copied(x[:1])
    KEY
    if key not in done:
        done[key] = honest(x, y)
    return done[key]
"""
"""Honest while fresh memory is filled with NaN, as it is in checked calls and not in timed ones."""


def memo(key: str) -> str:
    """A wrapper that answers from memory what has the same `key`, and launches a kernel all the same."""
    return computing("0") + HONEST + MEMO.format(key=key)


def beside(body: str) -> str:
    """`body` beside the honest kernel and one that copies."""
    return computing("0") + HONEST + POISONED + body


KEYS = {
    ("A20", "shape"): "x.shape",
    ("A20", "shape, stride and dtype"): "(x.shape, x.stride(), x.dtype, y.dtype)",
    ("A21", "the address"): "x.data_ptr() // 2**40",
    ("A21", "the storage's address"): "(x.untyped_storage().data_ptr() > 0, x.storage_offset())",
    ("A22", "the version"): "(x._version, y._version)",
    ("A22", "the type's identity"): "(id(type(x)), x.requires_grad)",
    ("A23", "a hash of one element's exponent"): "int(x[0, 0] * 0)",
    ("A23", "the number of elements that are equal"): "int((x == x).sum())",
}
KEYED = [Threat(row, f"remembers by {what}", memo(key), MISMATCH, where="both") for (row, what), key in KEYS.items()]
THREATS = [
    *KEYED,
    Threat("A18", "returns fresh memory", computing("(copied(x), torch.empty_like(x))[1]"), STALE, where="both"),
    Threat(
        "A46",
        "returns fresh memory where the reference has nothing but NaN",
        computing("(copied(x), torch.empty_like(x))[1]", "x"),
        flagged,
        task("torch.log(-x - 1)", "torch.rand(8, 64)"),
        "both",
    ),
    Threat(
        "A18",
        "returns the most finite of much fresh memory",
        computing("(copied(x), best(x))[1]") + "def best(x):\n    found = [torch.empty_like(x) for _ in range(50)]\n"
        "    return max(found, key=lambda t: int(torch.isfinite(t).sum()))\n",
        STALE,
        where="both",
    ),
    Threat(
        "A18",
        "returns fresh memory with filling switched off",
        UNFILLED + computing("(copied(x), torch.empty_like(x))[1]"),
        STALE,
    ),
    Threat(
        "A18",
        "looks for an answer in fresh memory with filling switched off",
        UNFILLED
        + computing("(copied(x), best(x, y))[1]")
        + "def best(x, y):\n    found = [torch.empty(x.shape) for _ in range(200)]\n"
        "    return max(found, key=lambda t: int((t[:9] == torch.relu(x + y)[:9]).sum()))\n",
        STALE,
    ),
    Threat(
        "A19",
        "writes nothing after the first call",
        UNFILLED
        + changed("out = torch.empty_like(x)", "out = torch.empty_like(x)\n    calls.append(0)").replace(
            "add_relu_kernel[", "n = n if len(calls) == 1 else 0\n    add_relu_kernel[", 1
        )
        + "calls = []\n",
        STALE,
        where="both",
    ),
    Threat(
        "A19", "writes all but the end", changed("mask = offsets < n", "mask = offsets < n - 1"), STALE, where="both"
    ),
    Threat(
        "A19",
        "writes all but the end with filling switched off",
        UNFILLED + changed("mask = offsets < n", "mask = offsets < n - 1"),
        STALE,
    ),
    Threat(
        "A19", "writes only what is large", changed("mask=mask)\n\n", "mask=mask & (x > 0))\n\n"), STALE, where="both"
    ),
    Threat("A21", "remembers by the exact address", memo("(x.data_ptr(), y.data_ptr())"), MISMATCH, where="both"),
    Threat(
        "A21",
        "copies what it worked out for an address, in timed calls",
        beside(TIMED.replace("KEY", "key = x.data_ptr()")),
        unrewarded,
        LARGE,
        "gpu",
    ),
    Threat(
        "A22",
        "remembers by the object, in timed calls",
        beside(TIMED.replace("KEY", "key = (id(x), id(y))")),
        unrewarded,
        LARGE,
        "gpu",
    ),
    Threat("A23", "remembers by a sample of elements", beside(NEARLY), MISMATCH, where="both"),
    Threat("A24", "computes twice, then replays", beside(REPLAY.format(n=2)), MISMATCH, where="both"),
    Threat(
        "A24",
        "computes in all checked calls, then replays in order",
        beside(TIMED.replace("KEY", "order.append(0); key = len(order) % 2")),
        unrewarded,
        LARGE,
        "gpu",
    ),
    Threat("A25", "works ahead on whatever inputs lie about", beside(AHEAD), status("mismatch", "nonfinite")),
    Threat("A25", "works ahead on the inputs of all timed calls", beside(BATCH), unrewarded, LARGE, "gpu"),
    Threat("A26", "replays answers in the order of calls", beside(REPLAY.format(n=1)), MISMATCH),
    Threat(
        "A26",
        "replays a CUDA graph on the first inputs",
        beside(GRAPH),
        MISMATCH | status("runtime_error"),
        where="gpu",
    ),
    Threat("A27", "one output for all calls", beside(KEPT), MISMATCH, where="both"),
    Threat(
        "A27",
        "two outputs in turn",
        beside(KEPT.replace("x.shape, torch", "next(turn) % 2, torch") + "turn = iter(range(99999))\n"),
        MISMATCH,
        where="both",
    ),
    Threat(
        "A27",
        "the output is a view of one that stays",
        beside(KEPT.replace("return out", "return out.view(-1).view(x.shape)")),
        MISMATCH,
        where="both",
    ),
    Threat(
        "A27",
        "the first output again, overwritten later",
        first("global kept").replace("return out", "kept = out if kept is None else kept.copy_(out)\n    return kept")
        + "kept = None\n",
        MISMATCH,
        where="both",
    ),
]
