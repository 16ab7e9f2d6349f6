"""Follows calls: into functions, methods and modules of the file, and to operations of the library.

Does not know statements and expressions, which `walking` goes through.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Any

from kb_ray.retrieve.operations import operation
from kb_ray.retrieve.parts import METADATA, NUMBER, Instance, Layer, Library, Program, Several, Tensor

_BUILTINS = frozenset(
    {"int", "float", "len", "range", "tuple", "list", "dict", "set", "str", "bool", "isinstance", "getattr", "hasattr",
     "setattr", "print", "super", "sum", "max", "min", "zip", "enumerate", "reversed", "sorted", "type", "iter", "next",
     "map", "filter", "all", "any", "round", "repr", "slice", "ValueError", "TypeError", "NotImplementedError",
     "RuntimeError", "Exception", "AssertionError"}
)  # fmt: skip
_SEQUENCES = frozenset({"Sequential", "ModuleList", "ModuleDict"})
_COLLECTING = frozenset({"append", "extend", "add_module", "insert"})

Scope = dict[str, Any]
"""What each name of a function is."""


class Calls(ABC):
    """What a call comes to. `found` holds the operations so far."""

    def __init__(self, program: Program) -> None:
        self.found: list[str] = []
        self._program = program

    @abstractmethod
    def _call(self, function: ast.FunctionDef, args: list[Any], named: Scope) -> Any:
        """Follows a function's body; what it returns."""

    @abstractmethod
    def _made(self, of: ast.ClassDef, args: list[Any], named: Scope) -> Instance:
        """An instance of a class of the file."""

    @abstractmethod
    def _value(self, node: ast.expr | None, scope: Scope) -> Any:
        """What an expression is."""

    @abstractmethod
    def _attribute(self, owner: Any, name: str) -> Any:
        """What an attribute is."""

    def _called(self, node: ast.Call, scope: Scope) -> Any:
        owner = None
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value, scope)
            called = self._attribute(owner, node.func.attr)
        else:
            called = self._value(node.func, scope)
        args = list[Any]()
        for argument in node.args:
            value = self._value(argument, scope)
            args += value.values if isinstance(argument, ast.Starred) and isinstance(value, Several) else [value]
        named = {word.arg: self._value(word.value, scope) for word in node.keywords if word.arg}
        if isinstance(node.func, ast.Attribute) and not isinstance(owner, Library):
            return self._method(owner, node, called, args, named, scope)
        return self._apply(called, args, named)

    def _method(self, owner: Any, node: ast.Call, called: Any, args: list[Any], named: Scope, scope: Scope) -> Any:
        """A call of an attribute: a field or method of an instance, a list that grows, or a tensor's method."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        if _is_super(node.func.value):
            mine = next((value for value in scope.values() if isinstance(value, Instance)), None)
            return self._inherited(mine, args, named) if mine and name == "forward" else NUMBER
        if isinstance(owner, Instance):
            method = self._program.method(owner.of, name)
            return self._call(method, [owner, *args], named) if method else self._apply(called, args, named)
        if isinstance(owner, Several):
            if name in _COLLECTING:
                owner.values += args[-1].values if args and isinstance(args[-1], Several) else args[-1:]
            return owner
        if owner is NUMBER or name in METADATA:
            return NUMBER
        if name == "clamp" and _is_relu(node):
            name = "relu"
        return self._note(name, [owner, *args, *named.values()])

    def _inherited(self, mine: Instance, args: list[Any], named: Scope) -> Any:
        """`super().forward()`, also of a class of PyTorch."""
        for base in mine.of.bases:
            known = self._value(base, {})
            if isinstance(known, ast.ClassDef):
                forward = self._program.method(known, "forward")
                return (
                    self._call(forward, [mine, *args], named)
                    if forward
                    else self._inherited(Instance(known, mine.fields), args, named)
                )
            if isinstance(known, Library) and known.name not in ("torch.nn.Module", "object"):
                return self._note(known.name.rpartition(".")[2], args)
        return Tensor()

    def _apply(self, called: Any, args: list[Any], named: Scope) -> Any:
        match called:
            case ast.FunctionDef():
                return self._call(called, args, named)
            case ast.ClassDef():
                return self._made(called, args, named)
            case Instance():
                forward = self._program.method(called.of, "forward")
                return self._call(forward, [called, *args], named) if forward else self._inherited(called, args, named)
            case Several(values=values):
                for value in list(values):
                    args, named = [self._apply(value, args, named)], {}
                return args[0] if args else Tensor()
            case Layer(name=name):
                return self._note(name, args)
            case Library(name=name):
                return self._library(name, args, named)
        return self._note("call", args)

    def _library(self, path: str, args: list[Any], named: Scope) -> Any:
        name = path.rpartition(".")[2]
        if path in _BUILTINS:
            inner = [value for value in args if isinstance(value, Several)]
            if path == "enumerate" and inner:
                return Several([NUMBER, inner[0]])
            return (Several(list(inner)) if path == "zip" else inner[0]) if inner else NUMBER
        if path.startswith("math."):
            return NUMBER
        if path.startswith("torch.nn.") and name[:1].isupper():
            if name == "Parameter":
                return Tensor()
            if name in _SEQUENCES:
                return args[0] if len(args) == 1 and isinstance(args[0], Several) else Several(args)
            return Layer(name)
        if name in ("weight_norm", "spectral_norm") and args:
            return args[0]
        if args and args[0] is NUMBER and all(value is NUMBER for value in (*args, *named.values())):
            # Made of numbers: zeros, ones, arange.
            return Tensor()
        return self._note(name, [*args, *named.values()])

    def _note(self, name: str, taken: list[Any]) -> Any:
        """The result of an operation; what computes nothing gives back what it took."""
        known = operation(name)
        if not known:
            return taken[0] if taken else Tensor()
        self.found.append(known)
        return taken_by(*taken)


def taken_by(*taken: Any) -> Tensor:
    """What an operation gives; what it took is used from now on."""
    for value in taken:
        for each in value.values if isinstance(value, Several) else [value]:
            if isinstance(each, Tensor):
                each.used = True
    return Tensor()


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_relu(node: ast.Call) -> bool:
    """`x.clamp(min=0)`."""
    match node:
        case ast.Call(args=[ast.Constant(value=0)], keywords=[]):
            return True
        case ast.Call(args=[], keywords=[ast.keyword(arg="min", value=ast.Constant(value=0))]):
            return True
    return False
