"""What the syntax tree says of a piece of code: what it defines, what it lacks, whether it holds a kernel.

Standard library only. Never runs the code. Whether a name means what it says is the verifier's question.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

ENTRY_POINTS: Final = ("ModelNew", "triton_kernel_wrapper")

ENTRY_PATTERN: Final = re.compile(r"^\s*(?:class\s+ModelNew|def\s+triton_kernel_wrapper)\b", re.MULTILINE)
"""An entry point's definition in text that may not parse."""

_PARSE_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError)
_GIVEN = frozenset(dir(builtins)) | {"__file__", "__builtins__", "__class__"}


@dataclass(frozen=True)
class Outline:
    """What parsing code shows."""

    entry: bool
    """Defines an entry point at module level."""
    stub: bool
    """Every entry point it defines has an empty body (`...`, `pass`, a docstring)."""
    kernel: bool
    """Mentions a JIT decorator or call."""
    defines: frozenset[str]
    """Names bound at module level."""
    lacks: frozenset[str]
    """Names used but bound nowhere in the code."""
    substance: bool
    """Defines at least one function or class."""


def parse(code: str) -> ast.Module | SyntaxError | None:
    """The tree, the syntax error, or None where the parser gives up otherwise (too deep, unencodable)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except SyntaxError as error:
            return error
        except _PARSE_FAILURES:
            return None


def outline(code: str) -> Outline | None:
    """The outline of code that parses, else None."""
    tree = parse(code)
    if not isinstance(tree, ast.Module):
        return None
    entries = [node for node in _module_level(tree.body) if _binds_entry(node)]
    defines, lacks = _names(code)
    return Outline(
        entry=bool(entries),
        stub=bool(entries) and all(_is_stub(node) for node in entries),
        kernel=any(_is_jit(node) for node in ast.walk(tree)),
        defines=defines,
        lacks=lacks,
        substance=any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in _module_level(tree.body)),
    )


def _module_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run in the module's scope, those under if, try and with included."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _module_level(getattr(node, field, ()))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _module_level(handler.body)


def _binds_entry(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name in ENTRY_POINTS
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id in ENTRY_POINTS for target in node.targets)
    return False


def _is_stub(node: ast.AST) -> bool:
    """Whether a definition does nothing: an illustration of a signature rather than an answer."""
    if isinstance(node, ast.Pass | ast.Raise):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.ClassDef):
        methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
        forward = [method for method in methods if method.name == "forward"]
        return all(_is_stub(child) for child in forward or node.body)
    return isinstance(node, ast.FunctionDef) and all(_is_stub(child) for child in node.body)


def _is_jit(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "jit") or (isinstance(node, ast.Name) and node.id == "jit")


def _names(code: str) -> tuple[frozenset[str], frozenset[str]]:
    """(bound at module level, used but bound nowhere). With a star import nothing counts as lacking."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = symtable.symtable(code, "<candidate>", "exec")
        except _PARSE_FAILURES:
            return frozenset(), frozenset()
    symbols = module.get_symbols()
    defined = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used = {s.get_name() for s in symbols if s.is_referenced()}
    for table in _nested(module):
        for symbol in table.get_symbols():
            if not symbol.is_global():
                continue
            (defined if symbol.is_assigned() else used).add(symbol.get_name())
    star = re.search(r"^\s*from\s+\S+\s+import\s+\*", code, re.MULTILINE)
    return frozenset(defined), frozenset() if star else frozenset(used - defined - _GIVEN)


def _nested(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _nested(child)
