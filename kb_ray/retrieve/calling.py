"""Follows calls: into functions, methods and modules of the file, and to operations of the library.

Does not know statements and expressions, which `walking` goes through.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from kb_ray.retrieve.operations import BINARY, is_relu, makes, makes_zeros, operation, root
from kb_ray.retrieve.parts import METADATA, NUMBER, Instance, Layer, Library, Local, Program, Several, Steps, Tensor

_BUILTINS = frozenset(
    {"int", "float", "len", "range", "tuple", "list", "dict", "set", "str", "bool", "isinstance", "getattr", "hasattr",
     "setattr", "print", "super", "sum", "max", "min", "zip", "enumerate", "reversed", "sorted", "type", "iter", "next",
     "map", "filter", "all", "any", "round", "repr", "slice", "ValueError", "TypeError", "NotImplementedError",
     "RuntimeError", "Exception", "AssertionError"}
)  # fmt: skip
_SEQUENCES = frozenset({"Sequential", "ModuleList", "ModuleDict"})
_COLLECTING = frozenset({"append", "extend", "add_module", "insert"})
_ZEROS = "zeros"
_TWO_SIDED = frozenset(BINARY.values())
_OF_AN_OPERATION = 10
"""Steps that each operation takes: what is found is kept and compared, and so must stay shorter than the walk."""

Scope = dict[str, Any]
"""What each name of a function is."""


class Calls(ABC):
    """What a call comes to. `found` holds the operations so far. Raises Spent where the steps do not reach."""

    def __init__(self, program: Program, steps: Steps) -> None:
        self.found: list[str] = []
        self._program, self._steps = program, steps
        self._inverse: Tensor | None = None
        """What the last operation gave, where that was 1 divided by something."""

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
        owner = None
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value, scope)
            called = self._attribute(owner, node.func.attr)
        else:
            called = self._value(node.func, scope)
        args = list[Any]()
        for argument in node.args:
            value = self._value(argument, scope)
            more = value.values if isinstance(argument, ast.Starred) and isinstance(value, Several) else [value]
            self._steps.take(len(more))
            args += more
        named = {word.arg: self._value(word.value, scope) for word in node.keywords if word.arg}
        if isinstance(node.func, ast.Attribute) and not isinstance(owner, Library):
            return self._method(owner, node, called, args, named, scope)
        if isinstance(called, Library) and not called.name.startswith("math."):
            name = self._respelled(called.name.rpartition(".")[2], node.args, node.keywords)
            if name is not None:
                taken = [*args, *named.values()]
                of_numbers = all(value is NUMBER for value in taken) and not makes(name)
                return NUMBER if of_numbers else self._note(name, taken)
        return self._apply(called, args, named)

    def _method(self, owner: Any, node: ast.Call, called: Any, args: list[Any], named: Scope, scope: Scope) -> Any:
        """A call of an attribute: a field or method of an instance, a list that grows, or a tensor's method."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        if _is_super(node.func.value):
            self._steps.take(len(scope))
            mine = next((value for value in scope.values() if isinstance(value, Instance)), None)
            return self._inherited(mine, args, named) if mine and name == "forward" else NUMBER
        if isinstance(owner, Instance):
            method = self._program.method(owner.of, name)
            return self._call(method, [owner, *args], named) if method else self._apply(called, args, named)
        if isinstance(owner, Several):
            if name in _COLLECTING:
                more = args[-1].values if args and isinstance(args[-1], Several) else args[-1:]
                self._steps.take(len(more))
                owner.values += more
            return owner
        if owner is NUMBER or name in METADATA:
            return NUMBER
        name = self._respelled(name, [node.func.value, *node.args], node.keywords) or name
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
        self._steps.take()
        match called:
            case ast.FunctionDef() | Local():
                return self._call(called, args, named)
            case ast.ClassDef():
                return self._made(called, args, named)
            case Instance():
                forward = self._program.method(called.of, "forward")
                return self._call(forward, [called, *args], named) if forward else self._inherited(called, args, named)
            case Several(values=values):
                self._steps.take(len(values))
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
        """The result of an operation; what computes nothing gives back what it took, or zeros and the like."""
        if makes(name):
            return Tensor(zero=name == _ZEROS)
        known = operation(name)
        if not known:
            return taken[0] if taken else Tensor()
        return self._noted(known, taken)

    def _noted(self, name: str, taken: list[Any]) -> Tensor:
        """The result of an operation of that name. Spellings that only values tell apart become one here."""
        if name == "rsqrt":
            taken, name = [self._noted("sqrt", taken)], "reciprocal"
        if name == "reciprocal":
            taken, name = [NUMBER, *taken[:1]], "div"
        if name == "max" and any(isinstance(value, Tensor) and value.zero for value in taken):
            name = "relu"
        if name == "mul" and self._inverse is not None and any(value is self._inverse for value in taken):
            # x * (1 / y) is x / y.
            self.found.pop()
            name = "div"
        # x * f(x) is no scaling: what was used before comes in a second time.
        again = any(isinstance(value, Tensor) and value.used for value in taken)
        self._steps.take(_OF_AN_OPERATION)
        self.found.append(f"{name}+" if again and name in _TWO_SIDED else name)
        self._use(taken)
        result = Tensor()
        self._inverse = result if name == "div" and taken[:1] == [NUMBER] else None
        return result

    def _respelled(self, name: str, operands: list[ast.expr], named: list[ast.keyword]) -> str | None:
        """The name of what a call is under another one, for its operands; None where it is what it says."""
        if makes_zeros(name, operands):
            return _ZEROS
        if is_relu(name, operands, named):
            return "relu"
        if len(operands) != 2:
            return None
        if operation(name) == "mul" and self._alike(*operands):
            return "pow"
        return root(operands[1]) if operation(name) == "pow" else None

    def _alike(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two expressions are spelled alike."""
        for mine, theirs in zip(_nodes(one), _nodes(other), strict=False):
            self._steps.take()
            if _marks(mine) != _marks(theirs):
                return False
        return True

    def _use(self, taken: list[Any]) -> None:
        """What an operation took is used from now on."""
        for value in taken:
            inner = value.values if isinstance(value, Several) else [value]
            self._steps.take(len(inner))
            for each in inner:
                if isinstance(each, Tensor):
                    each.used = True


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    return (found for found in ast.walk(node) if not isinstance(found, ast.expr_context))


def _marks(node: ast.AST) -> tuple[Any, ...]:
    """A node without its children: its kind, how many of them there are where, and what else it holds."""
    fields = (value for name, value in ast.iter_fields(node) if name != "ctx")
    return type(node), *(
        len(value) if isinstance(value, list) else None if isinstance(value, ast.AST) else repr(value)
        for value in fields
    )


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
