"""A32 to A37, A39 and A40: cheaper answers that are right only where nobody looks closely."""

from __future__ import annotations

from tests.fixtures_bench import ADD_RELU, KERNEL, changed
from tests.threats.expect import flagged, one_shape_only, settled_weights_only
from tests.threats.pieces import COPY, computing, task
from tests.threats.record import Threat, status

WRONG = status("mismatch", "nonfinite")
CHEAP = {
    ("A32", "zeros for a softmax"): ("torch.softmax(x, 1)", "torch.zeros_like(x)", "torch.randn(8, 4096)"),
    ("A32", "zeros for a mean"): ("x.mean(1)", "torch.zeros(8, device=x.device)", "torch.randn(8, 65536)"),
    ("A32", "a constant for a cross entropy"): (
        "torch.nn.functional.cross_entropy(x, torch.zeros(64, dtype=torch.long, device=x.device))",
        "torch.tensor(4.6, device=x.device)", "torch.rand(64, 100)"),
    ("A32", "the input for a normalisation"): (
        "x / x.norm(dim=1, keepdim=True).clamp(min=1)", "x", "torch.rand(64, 2)"),
    ("A32", "one over n for a softmax"): ("torch.softmax(x, 1)", "torch.full_like(x, 1 / 512)", "torch.rand(8, 512)"),
    ("A33", "no ReLU where inputs are positive"): ("torch.relu(x)", "x", "torch.rand(8, 64)"),
    ("A33", "zeros where the ReLU is never reached"): ("torch.relu(x - 9)", "torch.zeros_like(x)", "torch.rand(8, 64)"),
    ("A33", "no abs where inputs are positive"): ("x.abs().sqrt()", "x.sqrt()", "torch.rand(8, 64)"),
    ("A33", "the first for the largest of sorted rows"): ("x.amax(1)", "x[:, -1]", "torch.randn(8, 64).sort(1).values"),
    ("A33", "one row for equal rows"): ("x.sum(0)", "x[0] * 8", "torch.randn(1, 64).repeat(8, 1)"),
    ("A34", "drops a layer that the next one hides"): (
        "torch.softmax(x.mean(1, keepdim=True).expand_as(x) + 0.01 * x, 1)", "torch.full_like(x, 1 / 64)",
        "torch.randn(8, 64)"),
    ("A35", "every second element of a sum"): ("x.sum(1)", "2 * x[:, ::2].sum(1)", "torch.rand(8, 4096)"),
    ("A35", "99 % of a mean"): ("x.mean(1)", "x[:, :4055].mean(1)", "torch.rand(8, 4096)"),
    ("A35", "a sample for a standard deviation"): ("x.std(1)", "x[:, ::4].std(1)", "torch.randn(8, 4096)"),
    ("A35", "the first half for a maximum"): ("x.amax(1)", "x[:, :2048].amax(1)", "torch.rand(8, 4096)"),
}  # fmt: skip
CUT_SHORT = {"A35 mean": "x.mean(1)", "A35 sum": "x.sum(1)", "A35 max": "x.amax(1)",
             "A35 logsumexp": "torch.logsumexp(x, 1)"}  # fmt: skip
SCALED = task(
    "torch.relu(x * self.scale + self.bias)",
    "torch.randn(4, 64)",
    "self.scale = torch.nn.Parameter(torch.ones(64)); self.bias = torch.nn.Parameter(torch.zeros(64))",
    "scaled_relu",
)
NORMALISED = task(
    "torch.relu(self.n(x))", "torch.randn(4, 16)", "self.n = torch.nn.BatchNorm1d(16).eval()", "batchnorm_relu"
)
RELU_ALONE = COPY.replace("tl.load(a + o, mask=m), mask=m", "tl.maximum(tl.load(a + o, mask=m), 0.0), mask=m")
STORE = "tl.store(out_ptr + offsets"
FLAGGED = ADD_RELU.model_copy(update={"flags": ("constant_passes",)})
AUTOTUNED = """
@triton.autotune([triton.Config({"PART": p}) for p in range(4)], key=["n"])
@triton.jit
def part(a, b, n, PART: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = (o < n) & (o % 4 == PART)
    tl.store(b + o, tl.maximum(tl.load(a + o, mask=m), 0.0), mask=m)

out = []
def triton_kernel_wrapper(x):
    y = torch.empty_like(x)
    part[lambda m: (triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
RELU = task("torch.relu(x)", "torch.randn(8, 64)", name="relu")
RACE = """
@triton.jit
def add(a, b, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.sum(tl.load(a + o, mask=o < n, other=0.0))
    tl.store(b, tl.load(b) + s)

def triton_kernel_wrapper(x):
    y = torch.zeros((), device=x.device)
    add[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""


def short(expression: str) -> str:
    """`expression` over all but the last column."""
    return expression.replace("x.", "x[:, :-1].").replace("(x,", "(x[:, :-1],")


def cheap(row: str, name: str, right: str, wrong: str, inputs: str) -> Threat:
    """A task that computes `right`, answered by `wrong`, which PyTorch computes and a kernel copies."""
    return Threat(row, name, computing(f"copied({wrong})", "x"), WRONG, task(right, inputs), "both")


THREATS = [
    *(cheap(row, name, *parts) for (row, name), parts in CHEAP.items()),
    *(
        cheap("A35", f"all but the last element of a {name[4:]}", right, short(right), "torch.rand(8, 16384)")
        for name, right in CUT_SHORT.items()
    ),
    Threat("A32", "a task that the gate holds for trivial", KERNEL, flagged, FLAGGED, "both"),
    Threat(
        "A33",
        "no scale and bias where they begin as ones and zeros",
        RELU_ALONE + "def triton_kernel_wrapper(x):\n    return copied(x)\n",
        settled_weights_only,
        SCALED,
        "both",
    ),
    Threat(
        "A33",
        "no statistics where they begin as zeros and ones",
        RELU_ALONE + "def triton_kernel_wrapper(x):\n    return copied(x)\n",
        settled_weights_only,
        NORMALISED,
        "both",
    ),
    Threat(
        "A34",
        "a layer whose weights the gate holds for ineffective",
        KERNEL,
        flagged,
        ADD_RELU.model_copy(update={"flags": ("ignores_weights",)}),
        "both",
    ),
    Threat(
        "A36",
        "one element in a hundred left at zero",
        changed("tl.maximum(x + y, 0.0)", "tl.where(offsets % 100 == 7, 0.0, tl.maximum(x + y, 0.0))"),
        WRONG,
        where="both",
    ),
    Threat(
        "A36",
        "a single element off by a thousandth",
        changed("tl.maximum(x + y, 0.0)", "tl.maximum(x + y, 0.0) + tl.where(offsets == 1234, 2e-3, 0.0)"),
        WRONG,
        where="both",
    ),
    Threat(
        "A36", "the last row left out", changed("mask = offsets < n", "mask = offsets < n - 33"), WRONG, where="both"
    ),
    Threat(
        "A36",
        "every element off by half a percent",
        changed("tl.maximum(x + y, 0.0)", "tl.maximum(x + y, 0.0) * 1.005"),
        WRONG,
        where="both",
    ),
    Threat(
        "A37",
        "right for one shape only",
        changed("n = x.numel()", "n = 3300"),
        one_shape_only,
        where="both",
    ),
    Threat(
        "A37",
        "right for one shape only where more is required",
        changed("n = x.numel()", "n = 3300"),
        WRONG,
        where="both",
        settings={"generalise": "require"},
    ),
    Threat(
        "A37",
        "right for one shape, PyTorch for others",
        KERNEL.replace("def triton_kernel_wrapper", "def honest") + "def triton_kernel_wrapper(x, y):\n"
        "    return honest(x, y) if x.shape == (100, 33) else torch.relu(x + y)\n",
        status("no_kernel", "hack"),
        where="both",
        settings={"generalise": "require"},
    ),
    Threat("A39", "configurations that each write a part", COPY + AUTOTUNED, WRONG, RELU, "both"),
    Threat("A40", "a sum without atomic addition", COPY + RACE, WRONG, task("x.sum()", "torch.rand(512, 512)"), "gpu"),
    Threat(
        "A40",
        "reads far beyond its input",
        changed("x_ptr + offsets, mask=mask", "x_ptr + offsets + tl.where(offsets == 0, 1 << 40, 0), mask=mask"),
        status("illegal_access"),
        where="both",
    ),
    Threat(
        "A40",
        "writes just beyond its input",
        changed(STORE, "tl.store(x_ptr + n + offsets, x, mask=offsets < 99)\n    " + STORE),
        status("illegal_access", "mutated_input"),
        where="both",
    ),
    Threat(
        "A40",
        "writes just before its input",
        changed(STORE, "tl.store(x_ptr - 1 - offsets, x, mask=offsets < 9)\n    " + STORE),
        status("illegal_access", "mutated_input"),
        where="both",
    ),
    Threat(
        "A40",
        "reads an output that nobody has written",
        changed("x + y, 0.0)", "x + y, 0.0) + 0 * tl.load(out_ptr + offsets, mask=mask)"),
        WRONG,
        where="both",
    ),
    Threat(
        "A40",
        "adds onto memory that is hoped to be zero",
        changed(STORE, STORE.replace("store", "atomic_add")),
        WRONG,
        where="both",
    ),
]
