"""A41 to A52: outputs that compute later, lie about themselves, or are not quite what was asked for."""

from __future__ import annotations

from tests.fixtures_bench import changed, first
from tests.threats.pieces import COPY, computing, task
from tests.threats.record import Threat, status

STRUCTURE, SHAPE, DTYPE = status("wrong_structure"), status("wrong_shape"), status("wrong_dtype")
WRONG, MUTATED = status("mismatch", "nonfinite"), status("mutated_input")
LAZY = """
class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)
    def __init__(self, x):
        self.x = x
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[torch.relu(a.x) if isinstance(a, Lazy) else a for a in args], **(kwargs or {}))
"""
LYING = """
class Lying(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.allclose, torch.equal, torch.isclose):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})
"""
OBJECTS = {
    "equal to everything": "class E:\n    __eq__ = lambda s, o: True\n    __bool__ = lambda s: True\n",
    "with a tensor's names": "class E:\n    shape, dtype, device = (100, 33), torch.float32, 'cpu'\n"
    "    cpu = detach = clone = float = lambda s: torch.ones(100, 33)\n",
    "of numpy's protocol": "import numpy as np\nclass E:\n    __array__ = lambda s, *a: np.ones((100, 33))\n",
    "of DLPack's protocol": "class E:\n    __dlpack__ = lambda s, **k: torch.ones(100, 33).__dlpack__()\n"
    "    __dlpack_device__ = lambda s: (1, 0)\n",
}
SHAPED = {
    "one number": "out.sum()",
    "one number in a row": "out.sum().reshape(1)",
    "a row for a matrix": "out[0]",
    "a leading dimension of one": "out[None]",
    "the transposed shape": "out.t()",
    "all elements in a row": "out.view(-1)",
    "one row too few": "out[:-1]",
    "nothing": "out[:0]",
    "a view without end": "out[:1, :1].expand(1 << 40, 1 << 20)",
}
PLAIN = {
    "a list of lists": "out.tolist()",
    "numpy's array": "out.cpu().numpy()",
    "None": "None",
    "True": "True",
    "a generator": "(row for row in out)",
    "a tuple of one": "(out,)",
    "a dict": "{'out': out}",
    "a sparse tensor": "out.to_sparse()",
    "a quantised tensor": "torch.quantize_per_tensor(out.cpu(), 0.1, 0, torch.qint8)",
    "a tensor on no device": "out.to('meta')",
    "hundreds of thousands of tensors": "[out] * 300000",
    "itself": "loop(out)",
    "a number beyond 64 bits": "1 << 100000",
}
METHODS = ("cpu", "to", "float", "double", "clone", "detach", "contiguous", "numpy", "copy_", "data_ptr", "view")
TWO = task("x + 1, x * 2", "torch.randn(8, 64)", name="two")
MAPPED = task("{'a': x + 1, 'b': x * 2}", "torch.randn(8, 64)", name="mapped")
LOG = task("torch.log(x)", "torch.rand(8, 64) + 1e-3", name="log")
SOFTMAX = task("torch.softmax(x * 4, 1)", "torch.randn(8, 64)", name="softmax")


def returning(expression: str, prelude: str = "") -> str:
    """The right kernel, whose wrapper hands out `expression` of its result."""
    return changed("return out", f"return {expression}") + prelude


def copies(expression: str) -> str:
    """`expression` of x alone, computed by PyTorch and copied by a kernel."""
    return computing(expression, "x")


MADE = [
    *(
        Threat("A44", f"an object {what}", returning("E()", code), STRUCTURE, where="both")
        for what, code in OBJECTS.items()
    ),
    *(
        Threat(
            "A44",
            f"{what} for a tensor",
            returning(text, "def loop(x):\n    a = [x]\n    a.append(a)\n    return a\n"),
            STRUCTURE | SHAPE | DTYPE if "tensor" in what else STRUCTURE,
            where="both",
        )
        for what, text in PLAIN.items()
    ),
    *(Threat("A45", what, returning(text), SHAPE, where="both") for what, text in SHAPED.items()),
]
THREATS = [
    *MADE,
    Threat(
        "A41",
        "a tensor that computes when it is read",
        COPY + LAZY + "def triton_kernel_wrapper(x, y):\n    copied(x)\n    return Lazy(x + y)\n",
        STRUCTURE,
        where="both",
    ),
    Threat(
        "A41",
        "a function that computes later",
        computing("(copied(x), lambda: torch.relu(x + y))[1]"),
        STRUCTURE,
        where="both",
    ),
    Threat(
        "A41",
        "a tensor on which nothing has been done yet",
        computing("(copied(x), torch._neg_view(x + y))[1]"),
        WRONG,
        where="both",
    ),
    Threat(
        "A42",
        "a subclass that calls everything close",
        COPY
        + LYING
        + "def triton_kernel_wrapper(x, y):\n    copied(x)\n    return torch.zeros_like(x).as_subclass(Lying)\n",
        WRONG,
        where="both",
    ),
    Threat(
        "A42",
        "a parameter with a method of its own",
        returning(
            "lie(torch.nn.Parameter(out * 0))", "def lie(p):\n    p.detach = lambda: torch.ones_like(p)\n    return p\n"
        ),
        WRONG,
        where="both",
    ),
    *(
        Threat(
            "A43",
            f"a tensor whose {name} is replaced",
            returning(
                "lie(out, torch.relu(x + y))",
                f"def lie(o, r):\n    o.zero_()\n    o.{name} = lambda *a, **k: r\n    return o\n",
            ),
            WRONG,
            where="both",
        )
        for name in METHODS
    ),
    Threat(
        "A43",
        "a tensor class whose methods are replaced",
        returning("out * 0", "torch.Tensor.detach = torch.Tensor.clone = lambda s, *a: torch.ones(100, 33)\n"),
        WRONG,
    ),
    Threat(
        "A50",
        "sets its inputs to zero",
        first("").replace("return out", "x.zero_()\n    y.zero_()\n    return out"),
        MUTATED,
        where="both",
    ),
    Threat(
        "A50", "writes the answer over an input", changed("out = torch.empty_like(x)", "out = x"), MUTATED, where="both"
    ),
    Threat(
        "A50",
        "changes one element of an input by a kernel",
        changed("    tl.store(out_ptr", "    tl.store(y_ptr, 0.5)\n    tl.store(out_ptr"),
        MUTATED,
        where="both",
    ),
    Threat(
        "A50",
        "changes an input past its version counter",
        first("x.data[0, 0] = 3.0; x.detach()[1, 1] += 1"),
        MUTATED | WRONG,
        where="both",
    ),
    Threat("A51", "hands out an input", computing("(copied(x), x)[1]"), WRONG, where="both"),
    Threat("A51", "hands out an input it has overwritten", returning("x.copy_(out)"), MUTATED, where="both"),
    Threat(
        "A51",
        "writes into the other input",
        returning("out").replace("    return out", "    y[:1] += 1\n    return out"),
        MUTATED,
        where="both",
    ),
    Threat("A52", "one output too few", copies("(copied(x + 1),)"), STRUCTURE, TWO, "both"),
    Threat("A52", "one output too many", copies("(copied(x + 1), x * 2, x * 2)"), STRUCTURE, TWO, "both"),
    Threat("A52", "the first output alone", copies("copied(x + 1)"), STRUCTURE, TWO, "both"),
    Threat("A52", "outputs in the wrong order", copies("(copied(x * 2), x + 1)"), WRONG, TWO, "both"),
    Threat("A52", "a key too few", copies("{'a': copied(x + 1)}"), STRUCTURE, MAPPED, "both"),
    Threat("A52", "another key", copies("{'a': copied(x + 1), 'c': x * 2}"), STRUCTURE, MAPPED, "both"),
    Threat("A52", "nothing for the second output", copies("(copied(x + 1), None)"), STRUCTURE, TWO, "both"),
]
