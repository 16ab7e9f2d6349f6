"""What the names in a Python file stand for, as dotted paths: `k.jit` is `triton.jit` after `import triton as k`.

Reads a syntax tree, runs nothing. Follows imports, plain assignments, `getattr` with a known string,
`functools.partial` and `sys.modules["x"]`, everywhere in the file and regardless of scope: a name bound in
two ways stands for both. Does not know which paths matter.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

Nodes: TypeAlias = dict[type[ast.AST], list[ast.AST]]
"""The nodes of one tree by their type, in the order in which `ast.walk` meets them."""

_ROUNDS = 4
"""Chains of aliases (`a = torch; b = a; ...`) are followed so far where they stand in the wrong order."""


class Names:
    """The paths that the names of one file stand for. `reached`: names that are bound in it, and stand for themselves
    all the same."""

    def __init__(self, nodes: Nodes, reached: Collection[str] = ()) -> None:
        self._reached = frozenset(reached)
        self._paths: dict[str, set[str]] = {}
        self._stars: list[str] = []
        self._bound: set[str] = set()
        for kind, bind in _BINDERS.items():
            for node in nodes.get(kind, ()):
                bind(self, node)
        assigned = [pair for kind in _ASSIGNMENTS for node in nodes.get(kind, ()) for pair in _assigned(node)]
        for _ in range(_ROUNDS):
            news = [self._alias(name, value) for name, value in assigned]
            if not any(news):
                break

    def paths(self, node: ast.expr) -> set[str]:
        """Dotted paths that `node` may stand for; empty where unknown. An unbound name stands for itself."""
        match node:
            case ast.Name():
                return self._of_name(node.id)
            case ast.Attribute():
                return {f"{base}.{node.attr}" for base in self.paths(node.value)}
            case ast.Subscript():
                return self._of_item(node)
            case ast.Call() if node.args:
                return self._of_call(node)
            case ast.NamedExpr():
                return self.paths(node.value)
            case ast.IfExp():
                return self.paths(node.body) | self.paths(node.orelse)
            case ast.BoolOp():
                return {path for value in node.values for path in self.paths(value)}
        return set()

    def _of_name(self, name: str) -> set[str]:
        itself = self._reached & {name}
        if name in self._paths:
            return self._paths[name] | itself
        if name in self._bound:
            return set(itself)
        return {name, *(f"{module}.{name}" for module in self._stars)}

    def _of_item(self, node: ast.Subscript) -> set[str]:
        key = text(node.slice)
        bases = self.paths(node.value)
        if key is None:
            return set()
        found = {key} if "sys.modules" in bases else set()
        # `vars(torch)["compile"]`, `torch.__dict__["compile"]`, `__builtins__["exec"]`
        found |= {f"{base.removesuffix('.__dict__')}.{key}" for base in bases}
        return found

    def _of_call(self, node: ast.Call) -> set[str]:
        called = self.paths(node.func)
        first = node.args[0]
        if "getattr" in called and len(node.args) > 1:
            name = text(node.args[1])
            return set() if name is None else {f"{base}.{name}" for base in self.paths(first)}
        if called & {"functools.partial", "vars"}:
            return self.paths(first)
        return set()

    def bind_import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.split(".")[0]
            self._paths.setdefault(alias.asname or top, set()).add(alias.name if alias.asname else top)

    def bind_import_from(self, node: ast.ImportFrom) -> None:
        for alias in node.names if node.level == 0 else ():
            if alias.name == "*":
                self._stars.append(str(node.module))
            else:
                self._paths.setdefault(alias.asname or alias.name, set()).add(f"{node.module}.{alias.name}")

    def bind_name(self, name: str | None) -> None:
        if name is not None:
            self._bound.add(name)

    def _alias(self, name: str, value: ast.expr) -> bool:
        """Add what `value` stands for to `name`; whether that was news."""
        known = self._paths.get(name, set())
        new = self.paths(value) - known - {name}
        if new and len(known) < 16:
            self._paths[name] = known | new
            return True
        return False


_BINDERS: dict[type[ast.AST], Callable[[Names, Any], None]] = {
    ast.Import: Names.bind_import,
    ast.ImportFrom: Names.bind_import_from,
    ast.FunctionDef: lambda names, node: names.bind_name(node.name),
    ast.AsyncFunctionDef: lambda names, node: names.bind_name(node.name),
    ast.ClassDef: lambda names, node: names.bind_name(node.name),
    ast.ExceptHandler: lambda names, node: names.bind_name(node.name),
    ast.MatchAs: lambda names, node: names.bind_name(node.name),
    ast.MatchStar: lambda names, node: names.bind_name(node.name),
    ast.arg: lambda names, node: names.bind_name(node.arg),
    ast.Name: lambda names, node: names.bind_name(node.id if isinstance(node.ctx, ast.Store) else None),
}
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.NamedExpr)


def nodes_of(tree: ast.AST) -> Nodes:
    """All nodes of a tree, by type. Those without parts of their own (`pass`, operators) are left out."""
    nodes: Nodes = defaultdict(list)
    queue = [tree]
    for node in queue:
        nodes[type(node)].append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                queue.extend([part for part in value if isinstance(part, ast.AST)])
            elif isinstance(value, ast.AST) and value._fields:
                queue.append(value)
    return nodes


def imported(node: ast.AST) -> Iterator[str]:
    """Dotted paths that an import statement loads; nothing for other nodes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        for alias in node.names:
            yield str(node.module) if alias.name == "*" else f"{node.module}.{alias.name}"


def text(node: ast.expr) -> str | None:
    """The string that an expression of string literals makes (`"a" + "b"`, f-strings without fields)."""
    match node:
        case ast.Constant(value=str()):
            return str(node.value)
        case ast.BinOp(op=ast.Add()):
            left, right = text(node.left), text(node.right)
            return None if left is None or right is None else left + right
        case ast.JoinedStr():
            parts = [text(part) for part in node.values]
            return None if None in parts else "".join(part for part in parts if part)
    return None


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign():
            for target in node.targets:
                yield from _matched(target, node.value)
        case ast.AnnAssign(value=ast.expr()) | ast.NamedExpr():
            assert node.value is not None
            yield from _matched(node.target, node.value)


def _matched(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for part, item in zip(target.elts, value.elts, strict=False):
            yield from _matched(part, item)
