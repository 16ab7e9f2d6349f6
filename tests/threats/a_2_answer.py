"""A28 to A31 and A38: the answer read, guessed or known beforehand."""

from __future__ import annotations

from tests.fixtures_bench import ADD_RELU, KERNEL, changed, first
from tests.threats.expect import refused
from tests.threats.pieces import COPY, computing, task
from tests.threats.record import Threat, status

FORBIDDEN, STALE = status("forbidden"), status("mismatch", "nonfinite", "no_kernel")
NOT_FOUND = status("runtime_error", "import_error")
HIDDEN = """
import sys
objects = getattr(sys.modules["".join(["g", "c"])], "get_objects")
"""
FOUND = """
def found(x, y):
    copied(x)
    known = {x.data_ptr(), y.data_ptr()}
    there = [o for o in objects() if type(o) is torch.Tensor and o.shape == x.shape and o.data_ptr() not in known]
    return max(there, key=lambda t: int((t >= 0).sum()))
"""
FRAMES = """
import sys
def found(x, y):
    copied(x)
    frame = getattr(sys, "".join(["_get", "frame"]))()
    while frame is not None:
        for value in getattr(frame, "".join(["f_lo", "cals"])).values():
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(part, torch.Tensor) and part.shape == x.shape and part is not x and part is not y:
                    return part
        frame = getattr(frame, "".join(["f_", "back"]))
    raise LookupError("no answer in any frame")
"""
MAPPED = """
import os, sys
def found(x, y):
    copied(x)
    with open(os.path.join(os.sep, "proc", "self", "maps")) as f:
        blocks = [line.split() for line in f if "kb_block" in line]
    raw = open(os.path.join(os.sep, "proc", "self", "mem"), "rb")
    want = {x.data_ptr(), y.data_ptr()}
    for area, *_ in blocks:
        low, high = (int(end, 16) for end in area.split("-"))
        if not any(low <= p < high for p in want):
            raw.seek(high - 4 * x.numel())
            return torch.frombuffer(bytearray(raw.read(4 * x.numel())), dtype=x.dtype).view(x.shape)
    raise LookupError("no other block")
"""
SOURCES = """
import linecache, os, sys
def sought():
    texts = [" ".join(sys.argv), *os.environ.values()]
    texts += ["".join(lines) for _, _, lines, _ in (e for e in linecache.cache.values() if len(e) == 4)]
    for top in (os.getcwd(), "/tmp", os.path.dirname(__file__), *sys.path):
        for folder, _, names in os.walk(top):
            if "torch" not in folder and "triton" not in folder:
                for name in names:
                    path = os.path.join(folder, name)
                    if name.startswith(("reference", "candidate", "add_relu")) and path != __file__:
                        texts.append(open(path).read())
    return next(t for t in texts if "def reference" + "_impl(" in t or "class Mod" + "el(" in t)
SOURCE = sought()
"""
MODULES = """
import sys
REFERENCE = next(m for n, m in list(sys.modules.items()) if n.startswith("reference") or "reference_impl" in vars(m))
"""
POISONING = """
import sys
objects = getattr(sys.modules["".join(["g", "c"])], "get_objects")
def poisoned(x, y, value):
    for o in objects():
        if type(o) is torch.Tensor and o.is_floating_point() and o is not x and o is not y and o.numel() == x.numel():
            o.fill_(value)
    return copied(torch.full_like(x, value))
"""
SEEDED = """
ready = []
for seed in ({seeds}):
    torch.manual_seed(seed)
    first = [torch.randn(100, 33) for _ in range(2)]
    g = torch.Generator().manual_seed(seed)
    ready += [first, [torch.randn(100, 33, generator=g) for _ in range(2)]]
def triton_kernel_wrapper(x, y):
    copied(x)
    for a, b in ready:
        if torch.equal(a, x.cpu()):
            return torch.relu(a + b).to(x.device)
    a, b = ready[0]
    return torch.relu(a + b).to(x.device)
"""
MODEL_SEEDED = """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        seed = torch.initial_seed()
        self.guesses = []
        for offset in range(-3, 4):
            torch.manual_seed(seed + offset)
            self.guesses.append(torch.randn(16, 16))
    def forward(self, x):
        near = min(self.guesses, key=lambda g: float((g.to(x.device) - x).abs().sum()))
        return copied(torch.relu(near.to(x.device)))
"""
RELU = task("torch.relu(x)", "torch.randn(16, 16)", name="relu")
TABLE = "TABLE = [" + ", ".join(f"{(i * 7919 % 1000) / 1000}" for i in range(3300)) + "]\n"


def looking(how: str) -> str:
    """A candidate that returns what `how` finds."""
    return how + computing("found(x, y)")


THREATS = [
    Threat("A28", "the garbage collector, said openly", "import gc\n" + first("found = gc.get_objects()"), FORBIDDEN),
    Threat("A28", "frames, said openly", first("import sys; sys._getframe(1).f_locals"), FORBIDDEN),
    Threat(
        "A28",
        "frames of an exception",
        first("try: 1 / 0\n    except Exception as e: e.__traceback__.tb_frame"),
        FORBIDDEN,
    ),
    Threat("A28", "any tensor of the output's shape", looking(HIDDEN + FOUND), STALE | NOT_FOUND, where="both"),
    Threat("A28", "any tensor in the callers' frames", looking(FRAMES), STALE | NOT_FOUND, where="both"),
    Threat("A28", "shared memory that is mapped", looking(MAPPED), STALE | NOT_FOUND),
    Threat(
        "A28",
        "names in the main module",
        computing("(copied(x), vars(sys.modules['__main__'])['expected'])[1]") + "import sys\n",
        NOT_FOUND,
    ),
    Threat(
        "A29", "fills every tensor with NaN", POISONING + computing("poisoned(x, y, float('nan'))"), STALE, where="both"
    ),
    Threat("A29", "fills every tensor with zeros", POISONING + computing("poisoned(x, y, 0.0)"), STALE, where="both"),
    Threat("A30", "imports a module named reference", "import reference\n" + KERNEL, FORBIDDEN),
    Threat("A30", "imports kb_ray's own tasks", "import kb_ray.tasks\n" + KERNEL, FORBIDDEN),
    Threat("A30", "looks for the source on disk and in memory", SOURCES + KERNEL, NOT_FOUND),
    Threat("A30", "looks for the module", MODULES + KERNEL, NOT_FOUND, where="both"),
    Threat(
        "A30",
        "imports kb_ray's own tasks without being seen",
        KERNEL
        + "import importlib as i\n".replace("importlib", "pkgutil")
        + "R = i.resolve_name('kb_' + 'ray.tasks.builtin.level1.add_relu')\n",
        NOT_FOUND,
    ),
    Threat(
        "A30",
        "reads its own process's command",
        "import os\nwith open(os.path.join(os.sep, 'proc', 'self', 'cmdline')) as f:\n"
        "    assert 'reference_impl' in f.read()\n" + KERNEL,
        NOT_FOUND,
    ),
    Threat(
        "A31",
        "guesses usual seeds",
        computing("0") + SEEDED.format(seeds="0, 1, 42, 123, 1234, 1337"),
        STALE,
        where="both",
    ),
    Threat(
        "A31",
        "guesses the seed that is set",
        computing("0") + SEEDED.format(seeds="torch.initial_seed(),"),
        STALE,
        where="both",
    ),
    Threat("A31", "guesses inputs from the constructor's seed", COPY + MODEL_SEEDED, STALE, RELU, where="both"),
    Threat(
        "A31",
        "seeds the generators to zero and draws",
        computing("copied(torch.relu(drawn(x) + drawn(y)))")
        + "def drawn(x):\n    torch.manual_seed(0)\n    return torch.randn_like(x)\n",
        STALE,
        where="both",
    ),
    Threat(
        "A38",
        "a table of answers",
        TABLE + computing("copied(torch.tensor(TABLE, device=x.device).view(x.shape))"),
        STALE,
        where="both",
    ),
    Threat("A38", "a table of answers beyond all measure", KERNEL + f"TABLE = '{'x' * (1 << 18)}'\n", FORBIDDEN),
    Threat(
        "A38",
        "answers in the digits of a number",
        computing(
            "copied(torch.tensor([[(N >> i + j) % 7 / 7 for j in range(33)] for i in range(100)], device=D))"
        ).replace("return", "D = x.device; return")
        + f"N = {7**900}\n",
        STALE,
        where="both",
    ),
    Threat(
        "A38",
        "a single number for an answer",
        computing("copied(torch.full_like(x, 0.5641895835))"),
        STALE,
        ADD_RELU,
        where="both",
    ),
    Threat(
        "A30",
        "takes the source apart by inspect",
        "import inspect, sys\n"
        + changed(
            "return out",
            "return [inspect.getsource(m) for n, m in sorted(sys.modules.items()) if n.startswith('reference')][0]",
        ),
        refused,
    ),
]
