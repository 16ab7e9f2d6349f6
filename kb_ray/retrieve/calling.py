"""Follows calls: into functions, methods and modules of the file, and to operations of the library.

Does not know statements and expressions, which `walking` goes through.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from typing import Any

from kb_ray.retrieve.known_calls import SEQUENCES, KnownCalls
from kb_ray.retrieve.operations import operation
from kb_ray.retrieve.parts import (
    FUNCTIONS,
    METADATA,
    MODULES,
    NONE,
    NUMBER,
    OWN_CLASS,
    UNSPELLED,
    Context,
    Instance,
    Layer,
    Library,
    Local,
    Number,
    Partial,
    Program,
    Scope,
    Several,
    Spelled,
    Steps,
    Tensor,
    is_marked,
    without_names,
)

_COLLECTING = frozenset({"append", "extend", "add_module", "register_module", "insert", "update"})
_NAMED = frozenset({"items", "named_children", "named_modules"})
_KEEPING = frozenset(
    {"parameters", "named_parameters", "buffers", "named_buffers", "state_dict", "apply", "zero_grad", "requires_grad_",
     "register_buffer", "register_parameter", "save_for_backward", "mark_dirty", "mark_non_differentiable"}
)  # fmt: skip
"""Methods of PyTorch's modules and functions that compute nothing."""
_ITSELF = ("forward", "__call__")


class Calls(KnownCalls):
    """What a call comes to. Raises Spent where the steps do not reach."""

    def __init__(self, program: Program, steps: Steps) -> None:
        super().__init__(steps)
        self._program = program

    @abstractmethod
    def _call(self, function: ast.FunctionDef | Local, args: list[Any], named: Scope) -> Any:
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
        func, owner, called = node.func, None, None
        if not isinstance(func, ast.Attribute):
            called = self._value(func, scope)
        else:
            owner = self._value(func.value, scope)
            if isinstance(owner, Context):
                # What is kept for the way back computes nothing on this one.
                return NUMBER
            if isinstance(owner, Library):
                called = self._attribute(owner, func.attr)
        args = list[Any]()
        for argument in node.args:
            value = self._value(argument, scope)
            more = value.values if isinstance(argument, ast.Starred) and isinstance(value, Several) else [value]
            self._steps.take(len(more))
            args += more
        named = {word.arg: self._value(word.value, scope) for word in node.keywords if word.arg}
        if isinstance(func, ast.Attribute) and called is None:
            return self._method(owner, node, args, named, scope)
        return self._apply(called, args, named, Spelled.of(node))

    def _method(self, owner: Any, node: ast.Call, args: list[Any], named: Scope, scope: Scope) -> Any:
        """A call of an attribute: a field or method of an instance, a list that grows, or a tensor's method."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        if _is_super(node.func.value):
            self._steps.take(len(scope))
            mine = next((value for value in scope.values() if isinstance(value, Instance)), None)
            return self._inherited(mine, scope.get(OWN_CLASS, mine.of), name, args, named) if mine else NUMBER
        if isinstance(owner, Instance):
            return self._of_module(owner, node, args, named)
        if isinstance(owner, ast.ClassDef) and (name == "apply" or self._program.method(owner, name)):
            return self._apply(self._attribute(owner, name), args, named)
        if name in _ITSELF and isinstance(owner, (Several, Layer, *FUNCTIONS)):
            return self._apply(owner, args, named)
        if isinstance(owner, Several):
            return self._of_several(owner, name, args, named)
        if isinstance(owner, Number) or name in METADATA:
            return NUMBER
        name = self._respelled(name, Spelled((node.func.value, *node.args), tuple(node.keywords))) or name
        return self._note(name, [owner, *args, *named.values()])

    def _of_module(self, owner: Instance, node: ast.Call, args: list[Any], named: Scope) -> Any:
        """A method or field of a module of the file, or what every module has."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        if name in owner.fields or self._program.method(owner.of, name):
            return self._apply(self._attribute(owner, name), args, named, Spelled.of(node))
        if name in _ITSELF:
            return self._apply(owner, args, named)
        if name == "_conv_forward":
            return self._inherited(owner, owner.of, "forward", args, named)
        if name in ("children", "modules"):
            return self._children(owner)
        if name in _NAMED:
            return Several([NUMBER, self._children(owner)])
        if name in ("add_module", "register_module"):
            return self._stored(owner, node.args[:1], args[1:])
        if name in _KEEPING:
            return Tensor()
        return self._opaque([owner, *args]) if operation(name) else owner

    def _of_instance(self, owner: Instance, name: str) -> Any:
        if name in owner.fields:
            return owner.fields[name]
        if name == "_modules":
            return self._children(owner)
        method = self._program.method(owner.of, name)
        if method is None:
            return owner.fields.setdefault(name, Tensor())
        if is_marked(method, "property", "cached_property"):
            return self._call(method, [owner], {})
        return Partial(method) if self._program.is_static(owner.of, name) else Partial(method, (owner,))

    def _of_class(self, owner: ast.ClassDef, name: str) -> Any:
        if name == "apply":
            return self._applied(owner)
        method = self._program.method(owner, name)
        if method is None:
            return owner
        return Partial(method, (owner,) if is_marked(method, "classmethod") else ())

    def _children(self, of: Instance) -> Several:
        """The modules of a module, in the order in which they were stored."""
        found = []
        for value in of.fields.values():
            inner = value.values if isinstance(value, Several) else [value]
            self._steps.take(1 + len(inner))
            found += [value] if any(isinstance(each, (*MODULES, Several)) for each in inner) else []
        return Several(found)

    def _of_several(self, owner: Several, name: str, args: list[Any], named: Scope) -> Any:
        if owner.names and name in owner.names:
            return self._apply(owner.names[name], args, named)
        if name in _NAMED:
            return Several([NUMBER, owner])
        if name in _COLLECTING:
            for last in args[-1:]:
                self._add(owner, without_names(last) if name == "update" else last)
        return owner

    def _applied(self, of: ast.ClassDef) -> Any:
        """`apply` of a torch.autograd.Function of the file: its forward."""
        forward = self._program.method(of, "forward")
        if forward is None:
            return Tensor()
        return Partial(forward, () if self._program.method(of, "setup_context") else (Context(),))

    def _inherited(self, mine: Instance, of: ast.ClassDef, name: str, args: list[Any], named: Scope) -> Any:
        """A method that a class has of its bases, also of those of PyTorch."""
        # Each class waits once: one can be its own base.
        waiting, seen = [*of.bases], set[str]()
        for base in waiting:
            known = self._value(base, {})
            if isinstance(known, ast.ClassDef) and known.name not in seen:
                method = self._program.method(known, name)
                if method is not None:
                    return self._call(method, [mine, *args], named)
                seen.add(known.name)
                waiting += known.bases
            if isinstance(known, Library) and known.name not in ("torch.nn.Module", "object"):
                return self._of_library(mine, known.name.rpartition(".")[2], name, args)
        return Tensor() if name == "forward" else NUMBER

    def _of_library(self, mine: Instance, base: str, name: str, args: list[Any]) -> Any:
        """A method that a module of the file has of one of PyTorch."""
        if name == "__init__" and base in SEQUENCES:
            held = without_names(args[0] if len(args) == 1 and isinstance(args[0], Several) else Several(args)).values
            self._steps.take(len(held))
            mine.fields |= {f"{place}": value for place, value in enumerate(held)}
        if name != "forward":
            return NUMBER
        return self._apply(self._children(mine), args, {}) if base == "Sequential" else self._note(base, args)

    def _apply(self, called: Any, args: list[Any], named: Scope, spelled: Spelled = UNSPELLED) -> Any:
        self._steps.take()
        match called:
            case ast.FunctionDef() | Local():
                return self._call(called, args, named)
            case Partial(of=of):
                self._steps.take(len(called.args) + len(called.spelled.operands))
                given = called.spelled.then(spelled)
                return self._apply(of, [*called.args, *args], called.named | named, given)
            case ast.ClassDef():
                return self._made(called, args, named)
            case Instance():
                forward = next(filter(None, (self._program.method(called.of, name) for name in _ITSELF)), None)
                if forward is None:
                    return self._inherited(called, called.of, "forward", args, named)
                return self._call(forward, [called, *args], named)
            case Several(values=values):
                self._steps.take(len(values))
                for value in list(values):
                    args, named = [self._apply(value, args, named)], {}
                return args[0] if args else Tensor()
            case Layer(name=name):
                return self._note(name, args)
            case Library(name=name):
                return self._library(name, args, named, spelled)
        # Calling None is a branch that no run takes.
        return Tensor() if called is NONE else self._opaque(args)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
