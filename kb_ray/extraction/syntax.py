"""What the syntax tree says of a piece of code: what it defines, what it lacks, whether it holds a kernel.

Standard library only. Never runs the code. Whether a name means what it says is the verifier's question.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ENTRY_POINTS: Final = ("ModelNew", "triton_kernel_wrapper")

ENTRY_PATTERN: Final = re.compile(r"^\s*(?:class\s+ModelNew|def\s+triton_kernel_wrapper)\b", re.MULTILINE)
"""An entry point's definition in text that may not parse."""

_PARSE_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MAX_SCOPES = 500
_GIVEN = frozenset(dir(builtins)) | {"__file__", "__builtins__", "__class__"}


@dataclass(frozen=True)
class Outline:
    """What parsing code shows."""

    entry: bool
    """Defines an entry point at module level."""
    stub: bool
    """Every entry point it defines has an empty body (`...`, `pass`, a docstring)."""
    kernel: bool
    """Mentions Triton's JIT decorator, or one whose import is not shown."""
    defines: frozenset[str]
    """Names bound at module level."""
    lacks: frozenset[str]
    """Names used but bound nowhere in the code."""
    uses: frozenset[str]
    """Global names used, whether bound in the code or not."""
    functions: frozenset[str]
    """Names of functions and classes defined at module level."""
    hollow: frozenset[str]
    """Those of them whose every definition has an empty body (`...`, `pass`, a docstring)."""
    imports: Mapping[str, str]
    """Names that nothing but an import statement of their own binds -> those statements, one a line."""
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
    return outlined(code, tree) if isinstance(tree, ast.Module) else None


def outlined(code: str, tree: ast.Module) -> Outline:
    """The outline of code whose tree is known."""
    found = [node for node in _module_level(tree.body) if isinstance(node, _DEFINITIONS)]
    functions = frozenset(node.name for node in found)
    entries = [node for node in _module_level(tree.body) if _binds_entry(node)]
    defines, lacks, uses = _names(code)
    nodes = list(ast.walk(tree))
    origins = _origins(nodes)
    return Outline(
        entry=bool(entries),
        stub=bool(entries) and all(is_hollow(node) for node in entries),
        kernel=any(_is_jit(node, origins) for node in nodes),
        defines=defines,
        lacks=lacks,
        uses=uses,
        functions=functions,
        hollow=functions - {node.name for node in found if not is_hollow(node)},
        imports=_imports(tree),
        substance=bool(functions),
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
        return any(_is_bound(target) for target in node.targets)
    return isinstance(node, ast.AnnAssign) and node.value is not None and _is_bound(node.target)


def _is_bound(target: ast.expr) -> bool:
    """Whether an entry point is among the names that an assignment gives something to."""
    if isinstance(target, ast.Tuple | ast.List):
        return any(map(_is_bound, target.elts))
    if isinstance(target, ast.Starred):
        # A list of the rest, which is nothing to call.
        return False
    return isinstance(target, ast.Name) and target.id in ENTRY_POINTS


def is_hollow(node: ast.AST) -> bool:
    """Whether a definition does nothing: an illustration of a signature rather than an answer."""
    if isinstance(node, ast.Pass | ast.Raise):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.ClassDef):
        methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
        forward = [method for method in methods if method.name == "forward"]
        return all(is_hollow(child) for child in forward or node.body)
    return isinstance(node, ast.FunctionDef) and all(is_hollow(child) for child in node.body)


def _is_jit(node: ast.AST, origins: Mapping[str, str]) -> bool:
    """Whether a node names Triton's `jit`; that of another package (`torch.jit`, `numba.jit`) makes no kernel."""
    if isinstance(node, ast.Name):
        package, _, last = origins.get(node.id, f"triton.{node.id}").partition(".")
        return package == "triton" and last.rpartition(".")[2] == "jit"
    if not isinstance(node, ast.Attribute) or node.attr != "jit":
        return False
    root = node.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and origins.get(root.id, root.id).partition(".")[0] == "triton"


def _origins(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Names that imports bind -> what they stand for, as a dotted path."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {
                a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                for a in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module or ''}.{a.name}" for a in node.names}
    return found


def _imports(tree: ast.Module) -> dict[str, str]:
    """Names bound at the top of the code by import statements alone, each with those statements."""
    found: dict[str, list[str]] = {}
    others: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            for a in node.names:
                found.setdefault(a.asname or a.name.partition(".")[0], []).append(ast.unparse(ast.Import([a])))
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for a in node.names:
                line = ast.unparse(ast.ImportFrom(node.module, [a], node.level))
                found.setdefault(a.asname or a.name, []).append(line)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            others.add(node.name)
        else:
            others.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name: "\n".join(lines) for name, lines in found.items() if name not in others and name != "*"}


def _names(code: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """(bound at module level, used but bound nowhere, used). With a star import nothing counts as lacking.

    Nothing at all is known of code with more functions beside each other than any kernel file has: the time for it
    grows with the square of their number.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = symtable.symtable(code, "<candidate>", "exec")
        except _PARSE_FAILURES:
            return frozenset(), frozenset(), frozenset()
    tables = [module, *_nested(module)]
    if any(len(table.get_children()) > _MAX_SCOPES for table in tables):
        return frozenset(), frozenset(), frozenset()
    symbols = module.get_symbols()
    defined = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used = {s.get_name() for s in symbols if s.is_referenced()}
    for table in tables[1:]:
        for symbol in table.get_symbols():
            if not symbol.is_global():
                continue
            (defined if symbol.is_assigned() else used).add(symbol.get_name())
    star = re.search(r"^\s*from\s+\S+\s+import\s+\*", code, re.MULTILINE)
    lacks = set() if star else used - defined - _GIVEN
    return frozenset(defined), frozenset(lacks), frozenset(used)


def _nested(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _nested(child)
