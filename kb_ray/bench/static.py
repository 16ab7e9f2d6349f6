"""What can be said of a candidate's source without running it. Reads the syntax tree, never the text.

Rejects what cannot be an honest kernel and nothing else: a file that does not parse, one without an entry
point or a JIT function, and the short list in `forbidden`. Passing means only that it is worth running.
Pure, standard library only; knows no task and no device.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from kb_ray.bench import forbidden
from kb_ray.bench.names import Names, Nodes, imported, nodes_of, text
from kb_ray.bench.scopes import builtins_reached
from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import ErrorDetail, Record, Status

MAX_CHARACTERS = 1 << 17
"""Bounds the time that reading a file takes, and leaves no room for tables of answers."""
ENTRY_CLASS = "ModelNew"
ENTRY_FUNCTION = "triton_kernel_wrapper"
_JIT = frozenset(
    {
        "triton.jit",
        "triton.runtime.jit",
        "triton.runtime.jit.jit",
        "triton.JITFunction",
        "triton.runtime.JITFunction",
        "triton.runtime.jit.JITFunction",
        "triton.experimental.gluon.jit",
    }
)


class StaticFinding(Record):
    """Why a candidate is not run: syntax_error, no_kernel or forbidden, and where."""

    status: Status
    error: ErrorDetail


def check_static(code: str) -> StaticFinding | None:
    """The first thing that stands against running `code`, or None. Order: size, syntax, entry point, JIT, forbidden."""
    code = code.removeprefix("\ufeff")
    if len(code) > MAX_CHARACTERS:
        message = f"the file has {len(code)} characters, more than the {MAX_CHARACTERS} that any kernel needs"
        return _finding(Status.FORBIDDEN, message, code, None)
    try:
        tree = ast.parse(code)
        compile(tree, "candidate", "exec", dont_inherit=True)
        nodes = nodes_of(tree)
        names = Names(nodes, builtins_reached(code, tree, forbidden.PATHS))
        return _no_kernel(tree, nodes, names, code) or _forbidden(nodes, names, code)
    except SyntaxError as error:
        return _syntax(error, code)
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"the code cannot be parsed: {error or type(error).__name__}"
        return _finding(Status.SYNTAX_ERROR, message, code, None)


def _no_kernel(tree: ast.Module, nodes: Nodes, names: Names, code: str) -> StaticFinding | None:
    if not {ENTRY_CLASS, ENTRY_FUNCTION} & set(_bound_at_top(tree.body)):
        message = f"there is neither a class {ENTRY_CLASS} nor a function {ENTRY_FUNCTION} at module level"
        return _finding(Status.NO_KERNEL, message, code, None)
    if not any(names.paths(expression) & _JIT for expression in _applied(nodes)):
        message = "there is no Triton kernel: no function is decorated with @triton.jit"
        return _finding(Status.NO_KERNEL, message, code, None)
    return None


def _bound_at_top(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that module-level statements bind, also inside if, try, with, loops and match."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
                continue
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in statement.names)
                continue
            case ast.Assign() | ast.AnnAssign() | ast.For() | ast.With():
                yield from (n.id for n in _shallow(statement) if isinstance(n, ast.Name) and _stores(n))
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(statement, block, [])
            for part in inner:
                yield from _bound_at_top(getattr(part, "body", []) if not isinstance(part, ast.stmt) else [part])


def _shallow(statement: ast.stmt) -> Iterator[ast.AST]:
    """Nodes of a statement without the statements inside it."""
    pending: list[ast.AST] = [c for c in ast.iter_child_nodes(statement) if not isinstance(c, ast.stmt)]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(ast.iter_child_nodes(node))


def _stores(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _applied(nodes: Nodes) -> Iterator[ast.expr]:
    """Expressions used as decorators, called, or handed to a call (`partial(triton.jit, ...)`)."""
    for function in nodes.get(ast.FunctionDef, ()):
        assert isinstance(function, ast.FunctionDef)
        yield from (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    for call in nodes.get(ast.Call, ()):
        assert isinstance(call, ast.Call)
        yield call.func
        yield from call.args


def _forbidden(nodes: Nodes, names: Names, code: str) -> StaticFinding | None:
    found: list[tuple[int, str, str]] = []
    for node in _telling(nodes):
        found.extend((getattr(node, "lineno", 1), what, why) for what, why in _against(node, names))
    if not found:
        return None
    line, what, why = min(found)
    return _finding(Status.FORBIDDEN, f"`{what}` is not allowed (line {line}): {why}", code, line)


def _telling(nodes: Nodes) -> Iterator[ast.AST]:
    """Nodes that the rules are about. Strings that stand alone are documentation, or code switched off."""
    alone = {id(node.value) for node in nodes.get(ast.Expr, ()) if isinstance(node, ast.Expr)}
    # Of `a.b.c` only the whole counts: it is below `a.b`, and may be allowed where `a.b` is not.
    parts = {id(node.value) for node in nodes.get(ast.Attribute, ()) if isinstance(node, ast.Attribute)}
    whole: tuple[type[ast.AST], ...] = (ast.Import, ast.ImportFrom, ast.Subscript, ast.Call)
    chained: tuple[type[ast.AST], ...] = (ast.Name, ast.Attribute)
    yield from (node for kind in whole for node in nodes.get(kind, ()))
    yield from (node for node in nodes.get(ast.Constant, ()) if id(node) not in alone)
    for kind in chained:
        yield from (node for node in nodes.get(kind, ()) if id(node) not in parts or _is_inner(node))


def _is_inner(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in forbidden.ATTRIBUTES


def _against(node: ast.AST, names: Names) -> Iterator[tuple[str, str]]:
    """(what, why) of everything forbidden that a node itself stands for."""
    if isinstance(node, ast.Constant):
        value = node.value if isinstance(node.value, str) else ""
        yield from ((start, why) for start, why in forbidden.TEXTS.items() if value.startswith(start))
        return
    paths = names.paths(node) if isinstance(node, ast.expr) else imported(node)
    if isinstance(node, ast.Attribute) and node.attr in forbidden.ATTRIBUTES:
        yield node.attr, forbidden.ATTRIBUTES[node.attr]
    elif isinstance(node, ast.Subscript | ast.Call):
        key = _key(node)
        if key in forbidden.ATTRIBUTES:
            yield key, forbidden.ATTRIBUTES[key]
    yield from (found for path in sorted(paths) if (found := forbidden.reason_against(path)))


def _key(node: ast.Subscript | ast.Call) -> str:
    """The name that an item access or a two-argument call looks up; empty where it is not known."""
    if isinstance(node, ast.Subscript):
        return text(node.slice) or ""
    return text(node.args[1]) or "" if len(node.args) > 1 else ""


def _syntax(error: SyntaxError, code: str) -> StaticFinding:
    kind = "" if type(error) is SyntaxError else f"{type(error).__name__}: "
    where = "" if error.lineno is None else f" (line {error.lineno})"
    return _finding(Status.SYNTAX_ERROR, f"{kind}{error.msg}{where}", code, error.lineno, error.offset)


def _finding(status: Status, message: str, code: str, line: int | None, column: int | None = None) -> StaticFinding:
    detail = ""
    lines = re.split(r"\r\n?|\n", code)  # as Python counts them: form feeds end no line
    if line is not None and 1 <= line <= (len(lines) if lines[-1] else len(lines) - 1):
        source = lines[line - 1].expandtabs(1)[:200]
        caret = "" if column is None else "\n" + " " * (len(f"{line} | ") + min(max(column, 1), 200) - 1) + "^"
        detail = f"{line} | {source}{caret}"
    category = CATEGORY_BY_STATUS[status]
    return StaticFinding(status=status, error=ErrorDetail(category=category, message=message, detail=detail, line=line))
