"""Guesses which class of a file a task is about, where neither a row nor the name `Model` says it.

KernelBook's files hold helpers and base classes beside the class that its inputs were made for. Only syntax
is looked at: bases, `__init__`, `forward`, and the literals that get_inputs and get_init_inputs return.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kb_ray.tasks.signature import FunctionNode, Signature


def guess_class(classes: Sequence[ast.ClassDef], inputs: ast.AST | None, init_inputs: ast.AST | None) -> str | None:
    """Name of the last class that both input functions suit, else of the last one with a `forward`.

    None where no class has, or inherits within the file, a `forward`.
    """
    by_name = {node.name: node for node in classes}
    modules = [node for node in classes if _method(node, "forward", by_name)]
    count, call = _returned_count(inputs), _init_call(init_inputs)
    suited = [node for node in modules if _suits(node, by_name, count, call)]
    best = suited or modules
    return best[-1].name if best else None


def _suits(
    node: ast.ClassDef, by_name: dict[str, ast.ClassDef], count: int | None, call: tuple[int, frozenset[str]] | None
) -> bool:
    """`count`: how many inputs there are; `call`: what the constructor gets. None where that cannot be seen."""
    forward, init = _method(node, "forward", by_name), _method(node, "__init__", by_name)
    if forward and count is not None and not Signature.of(forward, method=True).fits(count):
        return False
    if call is None:
        return True
    return Signature.of(init, method=True).fits(*call) if init else call == (0, frozenset())


def _method(node: ast.ClassDef, name: str, by_name: dict[str, ast.ClassDef]) -> FunctionNode | None:
    """The method of that name, the class's own or a base's within the file."""
    seen: set[str] = set()
    queue = [node]
    while queue:
        current = queue.pop(0)
        seen.add(current.name)
        for item in current.body:
            if isinstance(item, FunctionNode) and item.name == name:
                return item
        bases = [base.id for base in current.bases if isinstance(base, ast.Name)]
        queue += [by_name[base] for base in bases if base in by_name and base not in seen]
    return None


def _returned(node: ast.AST | None) -> ast.List | ast.Tuple | None:
    """The list or tuple that a function returns literally."""
    values = [r.value for r in ast.walk(node) if isinstance(r, ast.Return)] if node else []
    return values[-1] if values and isinstance(values[-1], (ast.List, ast.Tuple)) else None


def _returned_count(node: ast.AST | None) -> int | None:
    returned = _returned(node)
    if returned is None or any(isinstance(item, ast.Starred) for item in returned.elts):
        return None
    return len(returned.elts)


def _init_call(node: ast.AST | None) -> tuple[int, frozenset[str]] | None:
    """(positional count, keyword names) that get_init_inputs stands for; None where it cannot be seen."""
    returned = _returned(node)
    if returned is None:
        return None
    match returned.elts:
        case [ast.List() | ast.Tuple() as args, ast.Dict() as kwargs]:
            keys = [key.value for key in kwargs.keys if isinstance(key, ast.Constant)]
            return len(args.elts), frozenset(str(key) for key in keys)
        case flat:
            return len(flat), frozenset()
