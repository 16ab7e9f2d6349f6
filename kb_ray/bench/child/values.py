"""The nodes of a value tree: what arguments and outputs are made of once their tensors are taken out.

Plain data, and the bounds on how much of it. Knows neither torch nor how a tree is sent: `tree` makes one
from Python values, `wire` sends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


class WireError(ValueError):
    """Bytes that are no value tree, or a value that has no place in one."""


@dataclass(frozen=True)
class TensorRef:
    """A tensor's place in the tree; its elements are buffer number `index` (0-based)."""

    index: int
    dtype: str
    """Name without prefix, e.g. `float32`, `bfloat16`."""
    shape: tuple[int, ...]
    requires_grad: bool = False
    strides: tuple[int, ...] | None = None
    """In elements, one per axis, none negative; None: contiguous."""


@dataclass(frozen=True)
class DTypeName:
    """A dtype given as a value, by name without prefix."""

    name: str


@dataclass(frozen=True)
class DeviceName:
    """A device given as a value, e.g. `cpu`, `cuda:0`."""

    name: str


@dataclass(frozen=True)
class Opaque:
    """A value that cannot travel; only the name of its type does."""

    type_name: str


@dataclass(frozen=True)
class Bag:
    """An object that is no more than its attributes: a namespace, a config, a dataclass."""

    type_name: str
    fields: dict[str, Tree]


Tree: TypeAlias = (
    "bool | int | float | complex | str | bytes | list[Tree] | tuple[Tree, ...] | dict[str | int, Tree] "
    "| TensorRef | DTypeName | DeviceName | Opaque | Bag | None"
)


@dataclass(frozen=True)
class Limits:
    """What a tree may cost at most. The same limits hold on both sides."""

    max_bytes: int = 16 << 20
    max_depth: int = 48
    """Containers inside each other; a bare leaf has depth 1."""
    max_nodes: int = 200_000
    max_int_bytes: int = 1024
    max_dims: int = 64


DEFAULT_LIMITS = Limits()
