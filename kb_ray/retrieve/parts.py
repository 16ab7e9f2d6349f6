"""What a program is made of while it is followed: its functions and classes, and the kinds of values it handles.

Values are told apart as far as following calls needs: numbers, modules, functions, lists of them, and everything else,
which is taken for a tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

METADATA = frozenset({"shape", "device", "dtype", "ndim", "requires_grad", "training", "size", "dim", "numel"})
"""Attributes and methods of a tensor that are no tensors."""
_HELPERS = frozenset({"get_inputs", "get_init_inputs"})


class Number:
    """A number, text or shape: what it is worth does not matter."""


NUMBER = Number()


class Tensor:
    """Anything else. `used`: whether an operation has taken it."""

    used = False


@dataclass(frozen=True)
class Library:
    """Something of a library, by its dotted name."""

    name: str


@dataclass(frozen=True)
class Layer:
    """A module of PyTorch: calling it is this operation."""

    name: str


@dataclass
class Several:
    """A list, or modules that are called one after the other."""

    values: list[Any]


@dataclass
class Instance:
    """A module of a class of the file, or `self`."""

    of: ast.ClassDef
    fields: dict[str, Any] = field(default_factory=dict)


class Program:
    """What a file defines and imports."""

    def __init__(self, tree: ast.Module) -> None:
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {
            node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name not in _HELPERS
        }
        self.imported = dict(_imported(tree))
        self.numbers = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def method(self, of: ast.ClassDef, name: str) -> ast.FunctionDef | None:
        """A class's own method or that of a base in the file."""
        waiting, seen = [of], set[str]()
        while waiting:
            current = waiting.pop(0)
            for node in current.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return node
            seen.add(current.name)
            bases = [base.id for base in current.bases if isinstance(base, ast.Name)]
            waiting += [
                self.classes[base] for base in dict.fromkeys(bases) if base in self.classes and base not in seen
            ]
        return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
