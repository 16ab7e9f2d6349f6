"""One name for each operation of PyTorch, however it is spelled: torch.relu, F.relu, nn.ReLU and x.relu_ are `relu`.

Knows names only; not which program calls what, nor on which numbers.
"""

from __future__ import annotations

import re
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
    found = name.lower().replace("_", "")
    if len(found) > len("loss"):
        found = found.removesuffix("loss")
    found = _NORM.sub(r"\1", found)
    if _PAD.fullmatch(found):
        found = "pad"
    found = _ALIASES.get(found, found)
    return None if found in _NOTHING else found
