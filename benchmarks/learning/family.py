"""Small tensor programs made of parts, each as PyTorch and as a Triton kernel: element by element, rows, products.

A specification is a few words; from it follow the reference, a right and well tuned kernel, and one that is right and
badly tuned. Pure: knows no split, no model and no verifier.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

Core = Literal["map", "sum", "max", "mean", "softmax", "layernorm", "matmul"]
Second = Literal["none", "same", "row", "column"]
"""A second input: as large as the first, one value a column (`row`), or one a row (`column`)."""

UNARY: dict[str, tuple[str, str]] = {
    "relu": ("torch.relu({v})", "tl.maximum({v}, 0.0)"),
    "sigmoid": ("torch.sigmoid({v})", "tl.sigmoid({v})"),
    "square": ("{v} * {v}", "{v} * {v}"),
    "double": ("{v} * 2.0", "{v} * 2.0"),
    "third": ("{v} / 3.0", "{v} / 3.0"),
    "plus": ("{v} + 1.5", "{v} + 1.5"),
    "decay": ("torch.exp(-torch.abs({v}))", "tl.exp(-tl.abs({v}))"),
    "root": ("torch.sqrt(torch.abs({v}))", "tl.sqrt(tl.abs({v}))"),
    "tanh": ("torch.tanh({v})", "2.0 * tl.sigmoid(2.0 * {v}) - 1.0"),
    "leaky": ("torch.nn.functional.leaky_relu({v}, 0.1)", "tl.where({v} > 0, {v}, {v} * 0.1)"),
    "silu": ("torch.nn.functional.silu({v})", "{v} * tl.sigmoid({v})"),
    "clamp": ("torch.clamp({v}, -1.0, 1.0)", "tl.minimum(tl.maximum({v}, -1.0), 1.0)"),
}
"""Name -> (PyTorch, Triton) of one value `v`."""
BINARY: dict[str, tuple[str, str]] = {
    "add": ("x + y", "x + y"),
    "subtract": ("x - y", "x - y"),
    "multiply": ("x * y", "x * y"),
    "larger": ("torch.maximum(x, y)", "tl.maximum(x, y)"),
}
SHAPES = ((64, 128), (128, 64), (32, 256), (96, 100), (256, 48))


@dataclass(frozen=True)
class Spec:
    """A program: what is done before the core, the core, what is done after it."""

    core: Core
    shape: tuple[int, int]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    second: Second = "none"
    join: str = "add"
    """How the second input comes in, before everything else."""

    @property
    def name(self) -> str:
        """Unique among specifications."""
        words = [self.core, *self.before, "then", *self.after, self.second, self.join if self.second != "none" else ""]
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:6]
        return "_".join(filter(None, [*words, "x".join(map(str, self.shape)), digest]))

    @property
    def combination(self) -> tuple[object, ...]:
        """The program without its shape: what is done, in which order."""
        return self.core, self.before, self.after, self.second, self.join if self.second != "none" else ""

    @property
    def parts(self) -> frozenset[str]:
        """What it is made of, shapes left out."""
        joined = {f"{self.second}:{self.join}"} if self.second != "none" else set()
        return frozenset({self.core, *self.before, *self.after, *joined})


def reference(spec: Spec) -> str:
    """The program as a PyTorch module with its inputs."""
    names = ["x"] + (["y"] if spec.second != "none" or spec.core == "matmul" else [])
    lines = [f"x = {BINARY[spec.join][0]}"] if spec.second != "none" else []
    lines += [f"x = {UNARY[op][0].format(v='x')}" for op in spec.before]
    lines += [_TORCH_CORES[spec.core]] if spec.core != "map" else []
    lines += [f"x = {UNARY[op][0].format(v='x')}" for op in spec.after]
    body = "\n        ".join([*lines, "return x"])
    return (
        "import torch\n\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {', '.join(names)}):\n        {body}\n\n\n"
        f"def get_inputs():\n    return [{', '.join(_inputs(spec))}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


_TORCH_CORES = {
    "sum": "x = x.sum(dim=1)",
    "max": "x = x.max(dim=1).values",
    "mean": "x = x.mean(dim=1)",
    "softmax": "x = torch.softmax(x, dim=1)",
    "layernorm": "x = torch.nn.functional.layer_norm(x, x.shape[1:])",
    "matmul": "x = x @ y",
}


def _inputs(spec: Spec) -> list[str]:
    rows, columns = spec.shape
    first = f"torch.randn({rows}, {columns})"
    second = {
        "same": first, "row": f"torch.randn({columns})", "column": f"torch.randn({rows}, 1)",
    }  # fmt: skip
    if spec.core == "matmul":
        return [first, f"torch.randn({columns}, 64)"]
    return [first, *([second[spec.second]] if spec.second != "none" else [])]


def kernel(spec: Spec, tuned: bool = True) -> str:
    """A right kernel for the program; not `tuned`: with blocks and warps that do not suit it, and a launch more."""
    if spec.core == "matmul":
        return _matmul(spec, tuned)
    return _by_elements(spec, tuned) if spec.core == "map" else _by_rows(spec, tuned)


def _chain(ops: tuple[str, ...]) -> list[str]:
    return [f"x = {UNARY[op][1].format(v='x')}" for op in ops]


def _body(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


def _by_elements(spec: Spec, tuned: bool) -> str:
    block, warps = (1024, 4) if tuned else (64, 8)
    columns = spec.shape[1]
    where = {"same": "o", "row": f"o % {columns}", "column": f"o // {columns}"}
    first = ["x = tl.load(x_ptr + o, mask=m)"]
    if spec.second != "none":
        first += [f"y = tl.load(y_ptr + {where[spec.second]}, mask=m)", f"x = {BINARY[spec.join][1]}"]
    head = ["o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "m = o < n"]
    steps, again = _chain(spec.before + spec.after), list[str]()
    if not tuned and len(steps) > 1:
        steps, again = steps[:1], steps[1:]
    arguments = "x_ptr, y_ptr" if spec.second != "none" else "x_ptr"
    code = _HEAD + f"def kernel({arguments}, out_ptr, n, BLOCK: tl.constexpr):\n"
    code += _body([*head, *first, *steps, "tl.store(out_ptr + o, x, mask=m)"])
    if again:
        code += "\n\n@triton.jit\ndef second(out_ptr, n, BLOCK: tl.constexpr):\n"
        code += _body([*head, "x = tl.load(out_ptr + o, mask=m)", *again, "tl.store(out_ptr + o, x, mask=m)"])
    given = "x, y" if spec.second != "none" else "x"
    call = f"[(triton.cdiv(n, {block}),)]({{}}n, BLOCK={block}, num_warps={warps})"
    lines = ["out = torch.empty_like(x)", "n = x.numel()", "kernel" + call.format(f"{given}, out, ")]
    lines += ["second" + call.format("out, ")] if again else []
    return code + f"\n\ndef triton_kernel_wrapper({given}):\n" + _body([*lines, "return out"])


def _by_rows(spec: Spec, tuned: bool) -> str:
    rows, columns = spec.shape
    block = 1 << (columns - 1).bit_length()
    warps = 4 if tuned else 16
    reduces = spec.core in ("sum", "max", "mean")
    where = {"same": f"r * {columns} + c", "row": "c", "column": "r"}
    lines = ["r = tl.program_id(0)", "c = tl.arange(0, BLOCK)", "m = c < columns"]
    lines += ["x = tl.load(x_ptr + r * columns + c, mask=m, other=0.0)"]
    if spec.second != "none":
        mask = "" if spec.second == "column" else ", mask=m, other=0.0"
        lines += [f"y = tl.load(y_ptr + {where[spec.second]}{mask})", f"x = {BINARY[spec.join][1]}"]
    lines += [*_chain(spec.before), *_ROW_CORES[spec.core], *_chain(spec.after)]
    lines += ["tl.store(out_ptr + r, x)" if reduces else "tl.store(out_ptr + r * columns + c, x, mask=m)"]
    arguments, given = ("x_ptr, y_ptr", "x, y") if spec.second != "none" else ("x_ptr", "x")
    out = "torch.empty(x.shape[0], device=x.device, dtype=x.dtype)" if reduces else "torch.empty_like(x)"
    call = f"kernel[({rows},)]({given}, out, {columns}, BLOCK={block}, num_warps={warps})"
    code = _HEAD + f"def kernel({arguments}, out_ptr, columns, BLOCK: tl.constexpr):\n" + _body(lines)
    return code + f"\n\ndef triton_kernel_wrapper({given}):\n" + _body([f"out = {out}", call, "return out"])


_ROW_CORES: dict[str, list[str]] = {
    "sum": ["x = tl.sum(tl.where(m, x, 0.0))"],
    "max": ["x = tl.max(tl.where(m, x, float('-inf')))"],
    "mean": ["x = tl.sum(tl.where(m, x, 0.0)) / columns"],
    "softmax": ["x = tl.exp(x - tl.max(tl.where(m, x, float('-inf'))))", "x = x / tl.sum(tl.where(m, x, 0.0))"],
    "layernorm": [
        "x = x - tl.sum(tl.where(m, x, 0.0)) / columns",
        "x = x / tl.sqrt(tl.sum(tl.where(m, x * x, 0.0)) / columns + 1e-5)",
    ],
}


def _matmul(spec: Spec, tuned: bool) -> str:
    """x (rows, k) by y (k, 64), in tiles of 32 or, badly, of 16."""
    rows, inner = spec.shape
    tile, warps = (32, 4) if tuned else (16, 8)
    lines = [
        "i = tl.program_id(0) * T + tl.arange(0, T)", "j = tl.program_id(1) * T + tl.arange(0, T)",
        "total = tl.zeros((T, T), tl.float32)", "for at in range(0, inner, T):", "    k = at + tl.arange(0, T)",
        "    x = tl.load(x_ptr + i[:, None] * inner + k[None, :], "
        "mask=(i[:, None] < rows) & (k[None, :] < inner), other=0.0)",
        *[f"    {line}" for line in _chain(spec.before)],
    ]  # fmt: skip
    # What is done before may turn the padding into something else than 0.
    lines += ["    x = tl.where(k[None, :] < inner, x, 0.0)"] if spec.before else []
    lines += [
        "    y = tl.load(y_ptr + k[:, None] * 64 + j[None, :], mask=k[:, None] < inner, other=0.0)",
        "    total = tl.dot(x, y, total, input_precision='ieee')", "x = total", *_chain(spec.after),
        "tl.store(out_ptr + i[:, None] * 64 + j[None, :], x, mask=i[:, None] < rows)",
    ]  # fmt: skip
    code = _HEAD + "def kernel(x_ptr, y_ptr, out_ptr, rows, inner, T: tl.constexpr):\n" + _body(lines)
    call = f"kernel[({-(-rows // tile)}, {64 // tile})](x, y, out, {rows}, {inner}, T={tile}, num_warps={warps})"
    out = f"out = torch.empty({rows}, 64, device=x.device, dtype=x.dtype)"
    return code + "\n\ndef triton_kernel_wrapper(x, y):\n" + _body([out, call, "return out"])


_HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"
