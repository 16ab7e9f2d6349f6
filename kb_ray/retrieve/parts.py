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
    """Anything else. `used`: whether an operation has taken it; `zero`: whether it is nothing but zeros."""

    used = False

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero


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


@dataclass(frozen=True)
class Local:
    """A function that was made within another one, or a lambda, and the names that it sees."""

    of: ast.FunctionDef | ast.Lambda
    scope: dict[str, Any]


@dataclass
class Instance:
    """A module of a class of the file, or `self`."""

    of: ast.ClassDef
    fields: dict[str, Any] = field(default_factory=dict)


class Spent(Exception):
    """A file has been followed as far as any is."""


class Steps:
    """How far the programs of one file may still be followed, all of them together: whatever can grow takes of it."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, count: int = 1) -> None:
        """Goes on by so many. Raises Spent where they are not left."""
        self._left -= count
        if self._left < 0:
            raise Spent


class Program:
    """What a file defines and imports."""

    def __init__(self, tree: ast.Module) -> None:
        self._methods: dict[tuple[int, str], ast.FunctionDef | None] = {}
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
        self.lambdas = {
            target.id: Local(node.value, {})
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def method(self, of: ast.ClassDef, name: str) -> ast.FunctionDef | None:
        """A class's own method or that of a base in the file."""
        key = (id(of), name)
        if key not in self._methods:
            self._methods[key] = self._looked_for(of, name)
        return self._methods[key]

    def _looked_for(self, of: ast.ClassDef, name: str) -> ast.FunctionDef | None:
        # Each class waits once: bases that share bases would otherwise double with every level.
        waiting, seen = [of], {of.name}
        for current in waiting:
            for node in current.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return node
            for base in current.bases:
                if isinstance(base, ast.Name) and base.id in self.classes and base.id not in seen:
                    seen.add(base.id)
                    waiting.append(self.classes[base.id])
        return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
