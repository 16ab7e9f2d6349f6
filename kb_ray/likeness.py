"""Whether two Python files are one program in other clothes: equal once names, comments and layout are taken off.

Reads syntax trees, runs nothing. Renamed variables, functions, classes and parameters, other comments,
docstrings, annotations, quotes and line breaks make no difference; constants, imports, attributes and the order of
statements do. Does not know what the programs are for, and finds no near-duplicates.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator


def likeness(code: str) -> str:
    """32 hex digits that are the same for files that differ in names, comments and layout only.

    A file that does not parse is like itself alone.
    """
    try:
        tree = ast.parse(code.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _digest(code)
    return _digest(ast.dump(bare(tree)))


def bare(tree: ast.Module) -> ast.Module:
    """`tree` itself, changed: the names that it gives are n0, n1, ..., and docstrings and annotations are gone."""
    names = {name: f"n{i}" for i, name in enumerate(dict.fromkeys(_bound(tree)))}
    stripped: ast.Module = _Bare(names).visit(tree)
    return stripped


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that the file gives itself, in the order of a walk through it; what it imports keeps its name."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.alias(asname=str()):
                yield str(node.asname)
            case ast.ExceptHandler(name=str()):
                yield str(node.name)


class _Bare(ast.NodeTransformer):
    """Renames what the file names itself, and drops docstrings and annotations."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "name", "arg", "asname"):
            old = getattr(node, field, None)
            if isinstance(old, str) and not (isinstance(node, ast.alias) and field == "name"):
                setattr(node, field, self._names.get(old, old))
        for field in ("annotation", "returns"):
            if hasattr(node, field) and not isinstance(node, ast.AnnAssign):
                setattr(node, field, None)
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._names.get(name, name) for name in node.names]
        body = getattr(node, "body", None)
        if isinstance(body, list):
            vars(node)["body"] = [s for s in body if not _is_text(s)]
        return super().generic_visit(node)


def _is_text(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
