"""Whether a kernel file is fit to be shown: it parses, has a kernel, and has the entry point that prompts ask for.

Reads text only. Whether a kernel is right is the verifier's to say.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from kb_ray.retrieve.example import Language

_ENTRIES = ("ModelNew", "triton_kernel_wrapper")
_JIT = re.compile(r"triton\.(?:.+\.)?jit$")
_MARK = "\ufeff"
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
# Raw strings first: they may hold quotes, comments and brackets.
_QUIET = re.compile(
    r"R\"([^()\\\s]*)\(.*?\)\1\"|//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_CLOSES = {")": "(", "]": "[", "}": "{"}
_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
# `__global__ void name(...) {`, with `void` before or after, bounds, attributes and template arguments between.
_KERNEL = re.compile(
    rf"(?:\bvoid\s[^;{{}}()]*__global__|__global__(?:[^;{{}}()]|{_NESTED}(?!\s*{{))*?\bvoid)\b"
    rf"(?:\s|\b[A-Za-z_]\w*\b(?:\s*{_NESTED})?(?=\s+[A-Za-z_])|[&*:<>,])*\s[A-Za-z_]\w*\s*(?:<[^;{{}}()]*>\s*)?{_NESTED}\s*{{"
)
_BRANCH = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b")


def unfit(code: str, language: Language) -> str | None:
    """Why a kernel is not to be shown, in a few words; None where it is fit."""
    code = code.removeprefix(_MARK)
    return _unfit_triton(code) if language == "triton" else _unfit_cuda(code)


def with_entry_point(code: str) -> str:
    """Triton code whose module is called otherwise, as KernelBook's `ReluNew`, also as `ModelNew`."""
    try:
        body = ast.parse(code).body
    except _UNREADABLE:
        return code
    defined = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    if any(name in defined for name in _ENTRIES):
        return code
    modules = [node.name for node in body if isinstance(node, ast.ClassDef) and node.name.endswith("New")]
    return f"{code.rstrip()}\n\n\nModelNew = {modules[-1]}\n" if modules else code


def _unfit_triton(code: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
            compile(tree, "example", "exec", dont_inherit=True)
    except _UNREADABLE:
        return "kernel is no valid Python"
    imported = dict(_imported(tree))
    return None if any(_is_jit(node, imported) for node in _makers(tree)) else "no Triton kernel in it"


def _makers(tree: ast.Module) -> Iterator[ast.expr]:
    """What functions of a file are decorated with, or handed to: `@triton.jit`, `k = triton.jit(k)`."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = {function.name for function in functions}
    for function in functions:
        yield from function.decorator_list
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=[ast.Name(id=name)]) if name in names:
                yield func


def _is_jit(node: ast.expr, imported: dict[str, str]) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    first, dot, rest = ast.unparse(node).partition(".")
    return _JIT.match(f"{imported.get(first, first)}{dot}{rest}") is not None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _unfit_cuda(code: str) -> str | None:
    text = "\n".join(_one_branch(_QUIET.sub(" ", code)))
    if "__global__" not in text or not _KERNEL.search(text):
        return "no CUDA kernel in it"
    opened: list[str] = []
    for mark in re.findall(r"[()\[\]{}]", text):
        if mark in _CLOSES.values():
            opened.append(mark)
        elif not opened or opened.pop() != _CLOSES[mark]:
            return "brackets of the CUDA code do not match"
    return "brackets of the CUDA code do not match" if opened else None


def _one_branch(text: str) -> Iterator[str]:
    """The lines without directives, and of each #if the first branch only: others may open the same bracket again."""
    shown = [True]
    for line in text.replace("\\\n", " ").splitlines():
        branch = _BRANCH.match(line)
        if branch is None:
            if all(shown) and not line.lstrip().startswith("#"):
                yield line
        elif branch[1].startswith("if"):
            shown.append(True)
        elif len(shown) > 1:
            if branch[1] == "endif":
                shown.pop()
            else:
                shown[-1] = False
