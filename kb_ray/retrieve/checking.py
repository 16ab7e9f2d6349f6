"""Whether a kernel file is fit to be shown: it parses, has a kernel, and has the entry point that prompts ask for.

Reads text only. Whether a kernel is right is the verifier's to say.
"""

from __future__ import annotations

import ast
import re

from kb_ray.retrieve.example import Language

_ENTRIES = ("ModelNew", "triton_kernel_wrapper")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_CLOSES = {")": "(", "]": "[", "}": "{"}


def unfit(code: str, language: Language) -> str | None:
    """Why a kernel is not to be shown, in a few words; None where it is fit."""
    return _unfit_triton(code) if language == "triton" else _unfit_cuda(code)


def with_entry_point(code: str) -> str:
    """Triton code whose module is called otherwise, as KernelBook's `ReluNew`, also as `ModelNew`."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code
    defined = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    if any(name in defined for name in _ENTRIES):
        return code
    modules = [node.name for node in body if isinstance(node, ast.ClassDef) and node.name.endswith("New")]
    return f"{code.rstrip()}\n\n\nModelNew = {modules[-1]}\n" if modules else code


def _unfit_triton(code: str) -> str | None:
    try:
        tree = ast.parse(code)
        compile(tree, "example", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "kernel is no valid Python"
    decorators = (d for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for d in node.decorator_list)
    return None if any("jit" in ast.unparse(d) for d in decorators) else "no Triton kernel in it"


def _unfit_cuda(code: str) -> str | None:
    if "__global__" not in code:
        return "no CUDA kernel in it"
    opened: list[str] = []
    for mark in re.findall(r"[()\[\]{}]", _COMMENTS.sub(" ", code)):
        if mark in _CLOSES.values():
            opened.append(mark)
        elif not opened or opened.pop() != _CLOSES[mark]:
            return "brackets of the CUDA code do not match"
    return "brackets of the CUDA code do not match" if opened else None
