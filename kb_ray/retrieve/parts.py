"""What a program is made of while it is followed: its functions and classes, and the kinds of values it handles.

Values are told apart as far as following calls needs: numbers, modules, functions, lists of them, and everything else,
which is taken for a tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

METADATA = frozenset({"shape", "device", "dtype", "ndim", "requires_grad", "training", "size", "dim", "numel"})
"""Attributes and methods of a tensor that are no tensors."""
OPAQUE = "?"
"""Stands among operations for what cannot be followed; the name of none."""
Scope = dict[str, Any]
"""What each name of a function is."""
OWN_CLASS = "class"
"""Among the names of a method, its class; no name of a program's."""
_HELPERS = frozenset({"get_inputs", "get_init_inputs"})


class Number:
    """A number, text or shape: what it is worth does not matter."""


NUMBER = Number()
NONE = Number()
"""What `None` is."""


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
    """A list or dictionary, or modules that are called one after the other."""

    values: list[Any]
    names: dict[str, Any] | None = None
    """By the keys of a dictionary, where all are literals."""


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


class Spelled(NamedTuple):
    """How the arguments of a call are written, as far as that is known."""

    operands: tuple[ast.expr, ...] = ()
    words: tuple[ast.keyword, ...] = ()

    @classmethod
    def of(cls, call: ast.Call) -> Spelled:
        """Those of a call."""
        return cls(tuple(call.args), tuple(call.keywords))

    def then(self, further: Spelled) -> Spelled:
        """With those of a further call."""
        return Spelled((*self.operands, *further.operands), (*self.words, *further.words))


UNSPELLED = Spelled()


@dataclass(frozen=True)
class Partial:
    """A function with some of its arguments: `functools.partial`, a method of an object, `apply` of a Function."""

    of: Any
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    spelled: Spelled = UNSPELLED


@dataclass(frozen=True)
class Context:
    """`ctx` of a torch.autograd.Function: what is kept on it is computed only where `forward` itself reads it."""

    kept: dict[str, Local] = field(default_factory=dict)


MODULES = (Layer, Instance)
FUNCTIONS = (ast.FunctionDef, Local, Partial)


def is_called(value: Any) -> bool:
    """Whether it is something that programs call, or a list of more than numbers."""
    if isinstance(value, Several):
        return bool(value.values)
    return isinstance(value, (*MODULES, *FUNCTIONS, Library, ast.ClassDef))


def without_names(value: Any) -> Several:
    """The values of a dictionary, of its items, or of a list of names and values."""
    if not isinstance(value, Several):
        return Several([])
    if _is_pair(value) and isinstance(value.values[1], Several):
        return value.values[1]
    return Several([each.values[1] if _is_pair(each) else each for each in value.values], value.names)


def item(value: Any, place: ast.expr) -> Any:
    """What stands at a place of something; all of it where the place is none of a list's."""
    if isinstance(value, Library):
        return Tensor()
    if not isinstance(value, Several) or isinstance(place, (ast.Slice, ast.Tuple)):
        return value
    key = place.value if isinstance(place, ast.Constant) else None
    if isinstance(key, int):
        return value.values[key] if -len(value.values) <= key < len(value.values) else Tensor()
    if isinstance(key, str):
        return (value.names or {}).get(key, Tensor())
    # Of functions by their names one is meant, of modules all in a loop.
    chosen = value.names and not all(isinstance(each, (*MODULES, Several)) for each in value.names.values())
    return Tensor() if chosen else value


def _is_pair(value: Any) -> bool:
    return isinstance(value, Several) and len(value.values) == 2 and isinstance(value.values[0], Number)


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
        self.class_of = {id(node): each for each in self.classes.values() for node in each.body}
        """The class of each method, by its id."""
        self.imported = dict(_imported(tree))
        self.constants = {
            target.id: node.value
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

    def is_static(self, of: ast.ClassDef, name: str) -> bool:
        """Whether it is a method that takes neither object nor class."""
        found = self.method(of, name)
        return found is not None and is_marked(found, "staticmethod")

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


def is_marked(function: ast.FunctionDef, *decorators: str) -> bool:
    """Whether a function has one of these decorators, by the last part of their names."""
    names = (getattr(mark, "attr", getattr(mark, "id", None)) for mark in function.decorator_list)
    return any(name in decorators for name in names)


def with_attributes(tree: ast.Module) -> ast.Module:
    """The tree with `getattr(a, "b")` written `a.b`, in place."""
    # Not by a visitor, which gives up on deep trees.
    waiting: list[ast.AST] = [tree]
    for parent in waiting:
        for name, value in ast.iter_fields(parent):
            if isinstance(value, list):
                value[:] = [_as_attribute(each) for each in value]
            else:
                setattr(parent, name, _as_attribute(value))
        waiting += ast.iter_child_nodes(parent)
    return tree


def _as_attribute(node: Any) -> Any:
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str() as name), *_]):
            return ast.Attribute(value=owner, attr=name, ctx=ast.Load())
    return node


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
