"""Words of prose that parse as statements (`python`, `Done`, `- Fast`, `Note: fast`) and stand in code.

Takes out only what could do nothing but raise NameError: an expression of names alone, or an annotation without a
value, whose names nothing defines. What resolves is never touched. Knows nothing of blocks and rules.
"""

from __future__ import annotations

import ast
import builtins

from kb_ray.extraction.syntax import Outline

_HARMLESS = (
    ast.Name, ast.Attribute, ast.Constant, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple,
    ast.List, ast.Set, ast.Subscript, ast.Slice, ast.Starred, ast.expr_context, ast.operator, ast.unaryop,
    ast.boolop, ast.cmpop,
)  # fmt: skip
_GIVEN = frozenset(dir(builtins)) | {"__file__", "__builtins__"}


def without_words(code: str, tree: ast.Module, shape: Outline) -> str:
    """The code without such statements at its top level; unchanged where there are none."""
    lines = code.split("\n")
    gone: set[int] = set()
    begun = False
    for index, node in enumerate(tree.body):
        # Before anything is bound even a name of the code itself is a word: `triton` above `import triton`.
        known = (shape.defines | _GIVEN) if begun else _GIVEN
        unknown = shape.lacks if begun else None
        if _is_prose(node, known, unknown, shape) and _alone(tree.body, index):
            gone.update(range(node.lineno - 1, node.end_lineno or node.lineno))
        else:
            begun = begun or not _is_text(node)
    return "\n".join(line for number, line in enumerate(lines) if number not in gone) if gone else code


def _is_prose(node: ast.stmt, known: frozenset[str], lacks: frozenset[str] | None, shape: Outline) -> bool:
    if isinstance(node, ast.AnnAssign):
        unused = isinstance(node.target, ast.Name) and node.target.id not in shape.uses
        return node.value is None and unused and _unresolved(node.annotation, known, lacks)
    return isinstance(node, ast.Expr) and (_is_number(node.value) or _unresolved(node.value, known, lacks))


def _unresolved(value: ast.expr, known: frozenset[str], lacks: frozenset[str] | None) -> bool:
    """Whether an expression of names alone holds one that nothing defines."""
    nodes = list(ast.walk(value))
    names = {node.id for node in nodes if isinstance(node, ast.Name)} - known
    return all(isinstance(node, _HARMLESS) for node in nodes) and bool(names if lacks is None else names & lacks)


def _is_number(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool)
    )


def _is_text(node: ast.stmt) -> bool:
    """A docstring of the module, or what `...` stands for: nothing is bound by it."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _alone(body: list[ast.stmt], index: int) -> bool:
    """Whether a statement shares its lines with no other one."""
    node = body[index]
    before = body[index - 1].end_lineno or 0 if index else 0
    after = body[index + 1].lineno if index + 1 < len(body) else (node.end_lineno or node.lineno) + 1
    return before < node.lineno and after > (node.end_lineno or node.lineno)
