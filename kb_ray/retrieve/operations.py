"""One name for each operation of PyTorch, however it is spelled: torch.relu, F.relu, nn.ReLU and x.relu_ are `relu`.

Knows names, and the few numbers that make one operation another; not which program calls what.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

_ALIASES: Final = {
    "add": "add", "iadd": "add", "sub": "sub", "subtract": "sub", "rsub": "sub", "multiply": "mul", "divide": "div",
    "truedivide": "div", "absolute": "abs", "negative": "neg", "square": "pow", "power": "pow", "mm": "matmul",
    "amax": "max", "amin": "min", "maximum": "max", "minimum": "min", "clip": "clamp", "concat": "cat",
    "concatenate": "cat", "permute": "transpose", "swapaxes": "transpose", "movedim": "transpose", "t": "transpose",
    "view": "reshape", "viewas": "reshape", "flatten": "reshape", "unflatten": "reshape", "upsample": "interpolate",
    "upsamplingnearest2d": "interpolate", "upsamplingbilinear2d": "interpolate", "swish": "silu", "gt": "greater",
    "ge": "greaterequal", "lt": "less", "le": "lessequal", "eq": "equal", "ne": "notequal",
    "bcewithlogits": "binarycrossentropywithlogits", "bce": "binarycrossentropy", "vectornorm": "norm",
    "fullyconnected": "linear", "expit": "sigmoid", "multiheadattentionforward": "multiheadattention",
}  # fmt: skip
_NOTHING: Final = frozenset(
    {"identity", "dropout", "dropout1d", "dropout2d", "dropout3d", "alphadropout", "featurealphadropout",
     "contiguous", "detach", "clone", "to", "cuda", "cpu", "float", "half", "double", "bfloat16", "int", "long",
     "type", "typeas", "item", "size", "dim", "numel", "requiresgrad", "register", "parameter", "buffer", "train",
     "eval", "tensor", "astensor", "fromnumpy", "print"}
)  # fmt: skip
"""What leaves numbers as they are, or makes none."""
_ZEROS: Final = frozenset({"zeros", "zeroslike", "newzeros"})
_MADE: Final = _ZEROS | {
    "oneslike", "newones", "fulllike", "newfull", "emptylike", "newempty",
}  # fmt: skip
"""What makes tensors of the shape of what it takes, and of numbers."""
_LITERALS: Final = frozenset({"tensor", "astensor", "scalartensor"})
_ROOTS: Final = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
_NORM = re.compile(r"(norm)[123]d$")
_PAD = re.compile(r"(?:constant|zero|reflection|replication|circular)?pad(?:[123]d)?$")

BINARY: Final = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "FloorDiv": "floordivide", "Mod": "remainder",
    "Pow": "pow", "MatMult": "matmul", "BitAnd": "bitwiseand", "BitOr": "bitwiseor", "BitXor": "bitwisexor",
    "Gt": "greater", "GtE": "greaterequal", "Lt": "less", "LtE": "lessequal", "Eq": "equal", "NotEq": "notequal",
}  # fmt: skip
"""Names of Python's operators, by their class in a syntax tree; others compute nothing on tensors."""


def operation(name: str) -> str | None:
    """The operation of a function, method or module, by the last part of its name; None where it computes nothing.

    `relu_`, `ReLU` -> `relu`; `MSELoss`, `mse_loss` -> `mse`; `BatchNorm2d`, `batch_norm` -> `batchnorm`.
    """
    found = _plain(name)
    if len(found) > len("loss"):
        found = found.removesuffix("loss")
    found = _NORM.sub(r"\1", found)
    if _PAD.fullmatch(found):
        found = "pad"
    found = _ALIASES.get(found, found)
    return None if found in _NOTHING else found


def makes(name: str) -> bool:
    """Whether a function or method of this name makes a tensor without computing."""
    return _plain(name) in _MADE


def makes_zeros(name: str, operands: Sequence[ast.expr]) -> bool:
    """Whether it makes nothing but zeros."""
    name = _plain(name)
    return name in _ZEROS or (name in _LITERALS and len(operands) == 1 and number(operands[0]) == 0)


def is_relu(name: str, operands: Sequence[ast.expr], named: Sequence[ast.keyword]) -> bool:
    """Whether `clamp` or its like bounds its first operand by zero from below and by nothing from above."""
    name = _plain(name)
    if name not in ("clamp", "clip", "clampmin"):
        return False
    bounds: dict[str | None, ast.expr] = dict(zip(("min", "max"), operands[1:], strict=False))
    bounds |= {word.arg: word.value for word in named if word.arg != "input"}
    below, above = bounds.get("min"), bounds.get("max")
    return below is not None and number(below) == 0 and (above is None or _is_none(above))


def root(exponent: ast.expr) -> str | None:
    """The function that raising to a power is, where it has a name: `x ** 0.5` is `sqrt`."""
    return _ROOTS.get(number(exponent) or 0.0)


def number(node: ast.expr) -> float | None:
    """What a literal number is; None for everything else."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _plain(name: str) -> str:
    return name.lower().replace("_", "")
