"""A PyTorch program reduced to what it computes: what is embedded, and what decides whether two programs are one.

Imports are resolved, input makers and constants that only they use are dropped, and every name that the program
gives itself to variables, classes and what it stores on self becomes a number. Names of methods, of class attributes,
of buffers and of parameters that are also keywords stay, since a library may ask for them: they tell texts and digests
apart, and what such programs compute tells that they are one. Reads syntax trees, runs nothing; does not
know where programs come from.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kb_ray.likeness import bare

TEXT_VERSION = 4
"""Changes whenever the same program could be embedded as another text, or its operations be called otherwise."""

_RUN = 5
_HELPERS = frozenset({"get_inputs", "get_init_inputs"})
_OWN_NAME = re.compile(r"\b[na]\d+\b")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Core:
    """What a program computes."""

    text: str
    """Python without imports, helpers, comments and names of its own; the raw text of what does not parse."""
    digest: str
    """32 hex digits: equal for programs that differ in layout, comments, imports, inputs and names only, save those
    that stay."""
    runs: frozenset[str]
    """Runs of five tokens in which every name of its own looks alike."""


@lru_cache(maxsize=4096)
def core(code: str) -> Core:
    """The core of a file; one that does not parse is like itself alone."""
    try:
        tree = bare(_reduced(ast.parse(code.removeprefix("\ufeff"))))
        numbered = ast.unparse(tree)
    except _UNREADABLE:
        numbered = code
    text = _OWN_NAME.sub("v", numbered)
    return Core(text=text, digest=_digest(numbered), runs=_runs(text))


@lru_cache(maxsize=4096)
def known_core(text: str, digest: str) -> Core:
    """The core of a program whose text and digest were kept: nothing is parsed."""
    return Core(text=text, digest=digest, runs=_runs(text))


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Share, 0 to 1, of the runs of two programs that both have."""
    either = len(one | other)
    return len(one & other) / either if either else 1.0


def tokens(text: str) -> list[str]:
    """Words and marks of a program's text, in order."""
    return _TOKEN.findall(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _runs(text: str) -> frozenset[str]:
    found = tokens(text)
    return frozenset(" ".join(found[i : i + _RUN]) for i in range(max(1, len(found) - _RUN + 1)))


def _reduced(tree: ast.Module) -> ast.Module:
    imported = dict(_imported(tree))
    kept = [statement for statement in tree.body if not _is_helper(statement)]
    used = {
        node.id
        for statement in kept
        if not isinstance(statement, ast.Assign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    used = _with_what_they_use(used, kept)
    body = [statement for statement in kept if not _is_unused_constant(statement, used)] or kept or tree.body
    own = {name: f"a{i}" for i, name in enumerate(dict.fromkeys(_attributes(body)))}
    reduced = ast.Module(body=body, type_ignores=[])
    changed: ast.Module = _Resolved(imported, own).visit(reduced)
    return changed


def _with_what_they_use(used: set[str], body: list[ast.stmt]) -> set[str]:
    """The names in use, and those from which constants in use are made: of `N = 3; M = N * 2` both where M is used."""
    while True:
        further = {
            node.id
            for statement in body
            if isinstance(statement, ast.Assign) and not _is_unused_constant(statement, used)
            for node in ast.walk(statement.value)
            if isinstance(node, ast.Name)
        }
        if further <= used:
            return used
        used = used | further


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name in the file, dotted path) of what is imported under another name than its own path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _is_helper(statement: ast.stmt) -> bool:
    """What says how a program is called, not what it computes."""
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef(name=name):
            return name in _HELPERS
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.Assign(targets=[ast.Name(id="input_shapes")]):
            return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_unused_constant(statement: ast.stmt, used: set[str]) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    names = {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return bool(names) and not names & used


def _attributes(body: list[ast.stmt]) -> Iterator[str]:
    """Names of attributes that a class stores on self, in the order of a walk, and of its methods but the dunders."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and _on_self(node) and isinstance(node.ctx, ast.Store):
                yield node.attr


def _on_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


class _Resolved(ast.NodeTransformer):
    """Writes imported names as dotted paths, attributes of self by number, and super() in its short form."""

    def __init__(self, imported: dict[str, str], own: dict[str, str]) -> None:
        self._imported, self._own = imported, own

    def visit_Name(self, node: ast.Name) -> ast.AST:
        path = self._imported.get(node.id)
        return ast.parse(path, mode="eval").body if path and isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if _on_self(node):
            node.attr = self._own.get(node.attr, node.attr)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []
        return node
