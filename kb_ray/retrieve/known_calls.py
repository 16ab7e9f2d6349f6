"""What calls of Python's and PyTorch's own functions come to.

Does not know functions, classes and modules of the file, which `calling` follows.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from kb_ray.retrieve.noting import Notes
from kb_ray.retrieve.operations import makes
from kb_ray.retrieve.parts import (
    NUMBER,
    UNSPELLED,
    Instance,
    Layer,
    Number,
    Partial,
    Scope,
    Several,
    Spelled,
    Tensor,
    without_names,
)

_BUILTINS = frozenset(
    {"int", "float", "len", "range", "tuple", "list", "dict", "set", "str", "bool", "isinstance", "getattr", "hasattr",
     "setattr", "print", "super", "sum", "max", "min", "zip", "enumerate", "reversed", "sorted", "type", "iter", "next",
     "map", "filter", "all", "any", "round", "repr", "slice", "ValueError", "TypeError", "NotImplementedError",
     "RuntimeError", "Exception", "AssertionError"}
)  # fmt: skip
SEQUENCES = frozenset({"Sequential", "ModuleList", "ModuleDict"})
_AS_IT_IS = frozenset({"weight_norm", "spectral_norm", "script", "compile", "DataParallel"})
"""What gives a module or function back that computes the same."""


class KnownCalls(Notes, ABC):
    """Calls by name. Raises Spent where the steps do not reach."""

    @abstractmethod
    def _apply(self, called: Any, args: list[Any], named: Scope, spelled: Spelled = UNSPELLED) -> Any:
        """Calls anything."""

    def _library(self, path: str, args: list[Any], named: Scope, spelled: Spelled) -> Any:
        name = path.rpartition(".")[2]
        if path.startswith("math."):
            return NUMBER
        if path in _BUILTINS:
            return self._built_in(path, args, named, spelled)
        other = self._respelled(name, spelled)
        if other is not None:
            taken = [*args, *named.values()]
            of_numbers = all(isinstance(value, Number) for value in taken) and not makes(other)
            return NUMBER if of_numbers else self._note(other, taken)
        if name == "OrderedDict":
            return self._dictionary(args, named)
        if name == "partial" and args:
            return Partial(args[0], tuple(args[1:]), named, Spelled(spelled.operands[1:], spelled.words))
        if name == "checkpoint" and args:
            return self._apply(args[0], args[1:], {})
        if path.startswith("torch.nn.") and name == "forward":
            return self._note(path.split(".")[-2], args[1:])
        if name in _AS_IT_IS and args:
            return args[0]
        if path.startswith("torch.nn.") and name[:1].isupper():
            return _layer(name, args)
        if args and all(isinstance(value, Number) for value in (*args, *named.values())):
            # Made of numbers: zeros, ones, arange.
            return Tensor()
        return self._note(name, [*args, *named.values()])

    def _dictionary(self, args: list[Any], named: Scope) -> Several:
        self._steps.take(sum(len(value.values) for value in args[:1] if isinstance(value, Several)))
        given = without_names(args[0]) if args else Several([], {})
        names = None if given.names is None else given.names | named
        return Several([*given.values, *named.values()], names)

    def _built_in(self, name: str, args: list[Any], named: Scope, spelled: Spelled) -> Any:
        if name == "dict":
            return self._dictionary(args, named)
        if name == "map" and len(args) > 1:
            return Several([self._apply(args[0], args[1:], {})])
        if name == "setattr" and args and isinstance(args[0], Instance):
            return self._stored(args[0], spelled.operands[1:2], args[2:])
        inner = [value for value in args if isinstance(value, Several)]
        if name == "enumerate" and inner:
            return Several([NUMBER, inner[0]])
        return (Several(list(inner)) if name == "zip" else inner[0]) if inner else NUMBER

    def _stored(self, owner: Instance, name: Sequence[ast.expr], value: list[Any]) -> Any:
        """Stores a field; under a name of no program's where it is no literal."""
        literal = [each.value for each in name if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        owner.fields |= dict.fromkeys(literal or [f"{len(owner.fields)}"], value[0]) if value else {}
        return NUMBER

    def _add(self, to: Several, given: Any) -> None:
        """Adds to a list. A list is added by what it holds, and so never to itself."""
        more = given.values if isinstance(given, Several) else [given]
        self._steps.take(len(more))
        to.values += more
        to.names = None


def _layer(name: str, args: list[Any]) -> Any:
    if name == "Parameter":
        return Tensor()
    if name in SEQUENCES:
        return args[0] if len(args) == 1 and isinstance(args[0], Several) else Several(args)
    return Layer(name)
