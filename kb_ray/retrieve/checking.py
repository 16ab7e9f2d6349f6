"""Whether a kernel file is fit to be shown: it parses, has a kernel, and has the entry point that prompts ask for.

Reads text only. Whether a kernel is right is the verifier's to say.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_left
from collections.abc import Iterator

from kb_ray.retrieve.example import Language

_ENTRIES = ("ModelNew", "triton_kernel_wrapper")
_JIT = re.compile(r"triton\.(?:.+\.)?jit$")
_MARK = "\ufeff"
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
# What hides brackets and words, in the order of precedence: a raw string may hold quotes, comments and brackets.
_HIDING = re.compile(r"R\"([^()\\\s\"]{0,16})\(|//|/\*|\"|'")
_RAW_END = re.compile(r"\)([^()\\\s\"]{0,16})\"")
# Possessive: what does not close is found out in one pass.
_QUOTED = {'"': re.compile(r"\"(?:\\.|[^\"\\\n])*+", re.DOTALL), "'": re.compile(r"'(?:\\.|[^'\\\n])*+", re.DOTALL)}
_CLOSES = {")": "(", "]": "[", "}": "{"}
_MARKS = [re.compile(rf"\b{word}\b") for word in ("__global__", "void")]
_NAMED = re.compile(r"[\s\w&*:<>,()]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
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
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return False
    return _JIT.match(".".join([imported.get(node.id, node.id), *reversed(names)])) is not None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _unfit_cuda(code: str) -> str | None:
    has_kernel, closed = _outline("\n".join(_one_branch(_bare(code))))
    if not has_kernel:
        return "no CUDA kernel in it"
    return None if closed else "brackets of the CUDA code do not match"


def _bare(code: str) -> str:
    """Code with a blank for each comment, string and character; what opens one and never closes it stays.

    Takes time in proportion to the code's length: what is known not to close is not looked for again.
    """
    raw_ends: dict[str, list[int]] = {}
    for found in _RAW_END.finditer(code):
        raw_ends.setdefault(found[1], []).append(found.end())
    last_end, open_until, kept, place = code.rfind("*/"), {'"': 0, "'": 0}, list[str](), 0
    at = _HIDING.search(code)
    while at is not None:
        start, end = at.start(), None
        match at[0]:
            case "//":
                end = code.find("\n", start)
                end = len(code) if end < 0 else end
            case "/*":
                end = code.find("*/", start + 2) + 2 if last_end >= start + 2 else None
            case '"' | "'" as quote if start >= open_until[quote]:
                # Where it ends open, all further ones up to there are escaped, and end open too.
                reached = _QUOTED[quote].match(code, start)
                stop = reached.end() if reached else start
                closes = code[stop : stop + 1] == quote
                end, open_until[quote] = (stop + 1, 0) if closes else (None, stop)
            case raw if raw.startswith("R"):
                ends = raw_ends.get(at[1], [])
                after = bisect_left(ends, at.end() + len(at[1]) + 2)
                end = ends[after] if after < len(ends) else None
        if end is not None:
            kept += code[place:start], " "
            place = end
        at = _HIDING.search(code, start + 1 if end is None else end)
    return "".join(kept) + code[place:]


def _outline(text: str) -> tuple[bool, bool]:
    """(whether a kernel is defined in CUDA code without comments and strings, whether its brackets match).

    A declaration is what stands between two of `;{}` within one pair of brackets, what is in brackets left out.
    """
    opened, heads, found, closed, place = list[str](), [list[str]()], False, True, 0
    for mark in re.finditer(r"[()\[\]{};]", text):
        heads[-1].append(text[place : mark.start()])
        place = mark.end()
        if mark[0] == ";":
            heads[-1].clear()
        elif mark[0] in _CLOSES.values():
            found = found or (mark[0] == "{" and _begins_kernel("".join(heads[-1])))
            opened.append(mark[0])
            heads.append([])
        elif not opened or opened[-1] != _CLOSES[mark[0]]:
            closed = False
        else:
            heads.pop()
            if opened.pop() == "{":
                heads[-1].clear()
            else:
                heads[-1].append("()" if mark[0] == ")" else "[]")
    return found, closed and not opened


def _begins_kernel(head: str) -> bool:
    """Whether a body after this belongs to a kernel: `__global__` and `void`, and then a name with parameters."""
    marks = [mark.search(head) for mark in _MARKS]
    rest = head[max(mark.end() for mark in marks if mark) :].rstrip() if all(marks) else ""
    if not rest.endswith("()") or not _NAMED.fullmatch(rest):
        return False
    before = rest[:-2].rstrip()
    if before.endswith(">"):
        before = _without_last_angles(before)
    words = before.replace("()", " () ").replace(":", " ").split()
    return bool(words) and _NAME.fullmatch(re.split(r"[&*<>,]", words[-1])[-1]) is not None


def _without_last_angles(text: str) -> str:
    """What stands before the `<...>` at the end."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(text[place], 0)
        if not depth:
            return text[:place].rstrip()
    return ""


def _one_branch(text: str) -> Iterator[str]:
    """The lines without directives, and of each #if the first branch only: others may open the same bracket again."""
    shown, hidden = [True], 0
    for line in text.replace("\\\n", " ").splitlines():
        branch = _BRANCH.match(line)
        if branch is None:
            if not hidden and not line.lstrip().startswith("#"):
                yield line
        elif branch[1].startswith("if"):
            shown.append(True)
        elif len(shown) > 1:
            hidden -= not shown[-1]
            if branch[1] == "endif":
                shown.pop()
            else:
                shown[-1] = False
                hidden += 1
