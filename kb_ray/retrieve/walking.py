"""Follows a program from where it begins, as it would run, and notes the operations it comes by.

Goes through statements and expressions, every branch and each loop once; does not know what tells two programs apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kb_ray.retrieve.calling import Calls
from kb_ray.retrieve.operations import BINARY, root
from kb_ray.retrieve.parts import (
    METADATA,
    NONE,
    NUMBER,
    OWN_CLASS,
    Context,
    Instance,
    Library,
    Local,
    Number,
    Program,
    Several,
    Steps,
    Tensor,
    is_called,
    item,
)

_DEEPEST = 12
"""Calls within calls that are followed."""


class Walk(Calls):
    """One walk. `found` holds the operations."""

    def __init__(self, program: Program, steps: Steps) -> None:
        super().__init__(program, steps)
        self._depth = 0
        self._constants: dict[str, Any] = {}

    def module(self, of: ast.ClassDef) -> None:
        """Walks a class as it is made and called."""
        if self._program.is_static(of, "forward"):
            self._apply(self._applied(of), [], {})
            return
        made = self._made(of, [], {})
        forward = self._program.method(of, "forward")
        if forward is not None:
            self._call(forward, [made], {})

    def function(self, of: ast.FunctionDef) -> None:
        """Walks a function."""
        self._call(of, [], {})

    def _made(self, of: ast.ClassDef, args: list[Any], named: dict[str, Any]) -> Instance:
        """An instance with the fields that its __init__ gives it; operations on the way there do not count."""
        made = Instance(of)
        begin = self._program.method(of, "__init__")
        if begin is not None:
            missing = {argument.arg: NUMBER for argument in begin.args.args[1 + len(args) :]}
            with self._aside():
                self._call(begin, [made, *args], named, missing)
        else:
            self._inherited(made, of, "__init__", args, named)
        return made

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Operations within do not count."""
        before = len(self.found)
        try:
            yield
        finally:
            del self.found[before:]
            self._inverse = None

    def _call(
        self,
        function: ast.FunctionDef | Local,
        args: list[Any],
        named: dict[str, Any],
        missing: Mapping[str, Any] | None = None,
    ) -> Any:
        node, seen = (function.of, function.scope) if isinstance(function, Local) else (function, {})
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        self._steps.take(1 + len(names) + len(args) + len(seen))
        if self._depth >= _DEEPEST:
            return Tensor()
        scope: dict[str, Any] = seen | {name: Tensor() for name in names} | dict(missing or {})
        defaults = zip(reversed(names), reversed(node.args.defaults), strict=False)
        only = zip((argument.arg for argument in node.args.kwonlyargs), node.args.kw_defaults, strict=True)
        for name, default in (*defaults, *only):
            scope[name] = self._value(default, scope) if default is not None else Tensor()
        scope |= dict(zip(names, args, strict=False)) | named
        if id(node) in self._program.class_of:
            scope[OWN_CLASS] = self._program.class_of[id(node)]
        self._depth += 1
        try:
            return self._value(node.body, scope) if isinstance(node, ast.Lambda) else self._body(node.body, scope)
        finally:
            self._depth -= 1

    def _body(self, body: list[ast.stmt], scope: dict[str, Any]) -> Any:
        result: Any = Tensor()
        for statement in body:
            self._steps.take()
            match statement:
                case ast.Return(value=value):
                    result = self._value(value, scope)
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr=kept)], value=value) if isinstance(
                    scope.get(name), Context
                ):
                    scope[name].kept[kept] = Local(_later(value), scope)
                case ast.Assign(targets=targets, value=value):
                    given = self._value(value, scope)
                    for target in targets:
                        self._bind(target, given, scope)
                case ast.AnnAssign(target=target, value=value):
                    self._bind(target, self._value(value, scope), scope)
                case ast.AugAssign(target=target, op=op, value=value):
                    self._bind(target, self._operated(target, op, value, scope), scope)
                case ast.For(target=target, iter=source, body=inner, orelse=after):
                    self._bind(target, self._value(source, scope), scope)
                    result = self._body([*inner, *after], scope)
                case ast.If(test=test, body=inner, orelse=after) | ast.While(test=test, body=inner, orelse=after):
                    self._value(test, scope)
                    result = self._body([*inner, *after], scope)
                case ast.Match(subject=subject, cases=cases):
                    given = self._value(subject, scope)
                    for case in cases:
                        scope |= dict.fromkeys(_captured(case.pattern), given)
                    result = self._body([inner for case in cases for inner in case.body], scope)
                case ast.With(body=inner):
                    result = self._body(inner, scope)
                case ast.Try(body=inner, orelse=after, finalbody=last):
                    result = self._body([*inner, *after, *last], scope)
                case ast.Expr(value=value):
                    self._value(value, scope)
                case ast.FunctionDef(name=name):
                    scope[name] = Local(statement, scope)
        return result

    def _bind(self, target: ast.expr, given: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                _set(scope, name, given)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if isinstance(scope.get(owner), Instance):
                _set(scope[owner].fields, name, given)
            case ast.Subscript(value=ast.Name() | ast.Attribute(value=ast.Name()) as owner) if is_called(given):
                holder = self._value(owner, scope)
                if isinstance(holder, Several):
                    self._add(holder, given)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = given.values if isinstance(given, Several) and len(given.values) == len(targets) else None
                for place, each in enumerate(targets):
                    self._bind(each, values[place] if values else given, scope)

    def _value(self, node: ast.expr | None, scope: dict[str, Any]) -> Any:
        """What an expression is, its operations noted in the order of evaluation."""
        self._steps.take()
        match node:
            case ast.Constant(value=None):
                return NONE
            case None | ast.Constant() | ast.JoinedStr():
                return NUMBER
            case ast.Lambda():
                return Local(node, scope)
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self._value(owner, scope), name)
            case ast.Call():
                return self._called(node, scope)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operated(left, op, right, scope)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._binary(self._value(left, scope), self._value(others[0], scope), ops[0])
            case ast.UnaryOp(op=op, operand=operand):
                value = self._value(operand, scope)
                if isinstance(op, ast.USub) and not isinstance(value, Number):
                    self._noted("neg", [])
                return value
            case ast.Subscript(value=owner, slice=place):
                return item(self._value(owner, scope), place)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                values = [self._value(element, scope) for element in elements]
                return NUMBER if _are_numbers(values) else Several(values)
            case ast.Dict(keys=keys, values=elements):
                names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
                values = [self._value(element, scope) for element in elements]
                by_name = dict(zip(names, values, strict=True)) if len(names) == len(values) else None
                return NUMBER if _are_numbers(values) else Several(values, by_name)
            case (
                ast.ListComp(elt=element, generators=loops)
                | ast.GeneratorExp(elt=element, generators=loops)
                | ast.DictComp(value=element, generators=loops)
            ):
                for loop in loops:
                    self._bind(loop.target, self._value(loop.iter, scope), scope)
                return Several([self._value(element, scope)])
            case ast.IfExp(test=test, body=one, orelse=other):
                self._value(test, scope)
                first, second = self._value(one, scope), self._value(other, scope)
                return second if isinstance(first, Number) else first
            case ast.BoolOp(values=elements):
                return [self._value(element, scope) for element in elements][-1]
            case ast.Starred(value=value) | ast.NamedExpr(value=value):
                return self._value(value, scope)
        return Tensor()

    def _named(self, name: str, scope: dict[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        program = self._program
        known = program.functions.get(name) or program.classes.get(name) or program.lambdas.get(name)
        if known is not None:
            return known
        if name in program.imported:
            return Library(program.imported[name])
        return self._constant(name) if name in program.constants else Library(name)

    def _constant(self, name: str) -> Any:
        """What a name of the file is; NUMBER where that is nothing that programs call."""
        if name not in self._constants:
            # Also while it is looked for, should it be made of itself.
            self._constants[name] = NUMBER
            with self._aside():
                found = self._value(self._program.constants[name], {})
            self._constants[name] = found if is_called(found) else NUMBER
        return self._constants[name]

    def _attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Library):
            return (
                NUMBER
                if owner.name in ("math", "numpy", "torch") and name in ("pi", "e", "inf", "nan")
                else Library(f"{owner.name}.{name}")
            )
        if isinstance(owner, Instance):
            return self._of_instance(owner, name)
        if isinstance(owner, ast.ClassDef):
            return self._of_class(owner, name)
        if isinstance(owner, Context):
            return self._call(owner.kept[name], [], {}) if name in owner.kept else Tensor()
        if name in METADATA or isinstance(owner, Number):
            return NUMBER
        if name in ("T", "mT", "H"):
            self._noted("transpose", [])
        return owner

    def _operated(self, left: ast.expr, op: ast.operator, right: ast.expr, scope: dict[str, Any]) -> Any:
        """`left op right`. A product of one thing with itself, and a root written as a power, are what else they are
        called.
        """
        first = self._value(left, scope)
        name = root(right) if isinstance(op, ast.Pow) else None
        if isinstance(op, ast.Mult) and self._alike(left, right):
            name = "pow"
        if name is not None:
            return NUMBER if isinstance(first, Number) else self._noted(name, [first])
        return self._binary(first, self._value(right, scope), op)

    def _binary(self, left: Any, right: Any, op: ast.operator | ast.cmpop) -> Any:
        if isinstance(left, Number) and isinstance(right, Number):
            return NUMBER
        name = BINARY.get(type(op).__name__)
        if name:
            return self._noted(name, [left, right])
        self._use([left, right])
        return Tensor()


def _captured(pattern: ast.pattern) -> list[str]:
    """Names that a pattern binds."""
    found = (getattr(node, "name", None) or getattr(node, "rest", None) for node in ast.walk(pattern))
    return [name for name in found if isinstance(name, str)]


def _are_numbers(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, Number) for value in values)


def _later(value: ast.expr) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=nothing, body=value)


def _set(names: dict[str, Any], name: str, given: Any) -> None:
    """Every branch is followed: what one of them leaves at None is what another makes of it."""
    if given is not NONE or not is_called(names.get(name)):
        names[name] = given
