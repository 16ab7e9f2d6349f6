"""Takes definitions with an empty body out of code: `def kernel(...): ...` that only says "as above".

Works on whole lines of the top level. Which names have a real body elsewhere is told by the caller.
"""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet

from kb_ray.extraction.syntax import is_hollow

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def without_definitions(code: str, tree: ast.Module, elsewhere: AbstractSet[str]) -> str:
    """The code without hollow definitions of names that have a body `elsewhere` or further up in the code itself."""
    real = set(elsewhere)
    gone: set[int] = set()
    for node in tree.body:
        if not isinstance(node, _DEFINITIONS):
            continue
        if not is_hollow(node):
            real.add(node.name)
        elif node.name in real:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            gone.update(range(first - 1, node.end_lineno or node.lineno))
    if not gone:
        return code
    return "\n".join(line for number, line in enumerate(code.split("\n")) if number not in gone)
