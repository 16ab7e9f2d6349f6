"""Which of Python's own functions a file reaches by their plain names, however it uses these names elsewhere.

A name that is bound in one function, or in the body of a class, is still the builtin in all others. Knows no rule.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Collection, Iterator


def builtins_reached(code: str, tree: ast.Module, names: Collection[str]) -> set[str]:
    """Those of `names` that stand for the builtin somewhere in the file. `tree`: of `code`, which can be parsed."""
    wanted = {name for name in names if hasattr(builtins, name) and name in code}
    if not wanted:
        return set()
    try:
        module = symtable.symtable(code, "<code>", "exec")
    except (SyntaxError, ValueError):
        # It cannot be compiled either.
        return set()
    own = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    own -= _passed_on(tree)
    return {name for name in wanted - own if any(_reaches(table, name) for table in _tables(module))}


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _tables(inner)


def _reaches(table: symtable.SymbolTable, name: str) -> bool:
    """Whether the name is used in this scope, and bound in none around it but perhaps the module's."""
    try:
        symbol = table.lookup(name)
    except KeyError:
        return False
    at_top = table.get_type() == "module"
    return symbol.is_referenced() and (at_top or symbol.is_global())


def _passed_on(tree: ast.Module) -> set[str]:
    """Names that are given what they stand for already: `exec = exec`."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == node.value.id
    }
