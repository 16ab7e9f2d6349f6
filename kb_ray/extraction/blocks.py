"""Finds the pieces of an answer that are marked as code: `<triton>` tags and fences, nested either way.

Knows Markdown and the tag, and asks the parser one thing only: whether a fence found inside an open
docstring is still that docstring. Which piece is the answer is not decided here.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass, replace
from itertools import islice

from kb_ray.extraction.syntax import parse

# One backtick on either side makes a tag inline code: talk about the tag, not the tag. A fence has more.
_TRITON = r"<triton(?:[ \t][^<>`\n]*)?>"
_OPEN_TAG = rf"(?:(?<!(?<!`)`){_TRITON}|{_TRITON}(?!`))"
_REOPEN_TAG = re.compile(_OPEN_TAG, re.IGNORECASE)
_CLOSE_TAG = re.compile(r"(?<!(?<!`)`)</triton>|</triton>(?!`)", re.IGNORECASE)
# A fence may stand behind a list marker; the info string of a backtick fence holds no backtick.
_FENCE = r"^[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(?P<fence>`{3,}(?!.*`)|~{3,})(?P<info>[^\n]*)$"
_MARK = re.compile(f"(?P<tag>{_OPEN_TAG})|{_FENCE}", re.IGNORECASE | re.MULTILINE)
_CODE_IN_INFO = re.compile(r"\s*(?:import|from|def|class|@\w+)\b")
_OTHER_LANGUAGES = re.compile(
    r"bash|sh|shell|console|cmd|powershell|makefile|dockerfile|json|yaml|yml|toml|ini|xml|html|css|csv|log|output"
    r"|diff|patch|c|h|cc|cpp|c\+\+|cuda|cu|hip|ptx|llvm|mlir|rust|go|java|sql|js|javascript|ts|typescript|latex"
    r"|tex|math|mermaid|dot"
)
_PYTHON = re.compile(r"^[ \t]*(?:@triton\b|def \w+ *\(|class \w+ *[(:]|import (?:torch|triton)\b)", re.MULTILINE)
_MAX_CLOSERS = 16
_MAX_DEPTH = 4


@dataclass(frozen=True)
class Block:
    """One marked piece of an answer."""

    code: str
    rule: str
    """`triton_tag`, `fence` or `bare`."""
    closed: bool
    """Whether its end is marked; an open block reaches to the end of the text."""
    foreign: bool = False
    """Whether its label names another language than Python, and its content does not show otherwise."""


def find_blocks(text: str, depth: int = 0) -> list[Block]:
    """All marked blocks in order of appearance; of nested ones the innermost that hold the code.

    `depth` counts the marks around `text`; below the fourth nothing is looked for.
    """
    if depth >= _MAX_DEPTH:
        return []
    blocks: list[Block] = []
    position = 0
    while mark := _MARK.search(text, position):
        found, position = (_tagged if mark["tag"] else _fenced)(text, mark, depth)
        blocks.extend(found)
    return blocks


def _tagged(text: str, mark: re.Match[str], depth: int) -> tuple[list[Block], int]:
    """The block behind a `<triton>` tag, or the fences in it, and where to go on."""
    again = _REOPEN_TAG.search(text, mark.end())
    limit = again.start() if again else len(text)
    close = _CLOSE_TAG.search(text, mark.end(), limit)
    end, resume = close.span() if close else (limit, limit)
    content = text[mark.end() : end]
    closed = close is not None or again is not None
    if not _parses(content) and (inner := _within(content, closed, depth)):
        return [replace(block, rule="triton_tag") for block in inner], resume
    return [Block(content, "triton_tag", closed)], resume


def _fenced(text: str, mark: re.Match[str], depth: int) -> tuple[list[Block], int]:
    """The block behind an opening fence, or what is marked within it, and where to go on."""
    start = min(mark.end() + 1, len(text))
    info = mark["info"].strip()
    first_line = info + "\n" if _CODE_IN_INFO.match(info) else ""
    end, resume, closed = _fence_end(text, start, mark["fence"])
    content = first_line + text[start:end]
    if not _parses(content) and (inner := _within(content, closed, depth)):
        return inner, resume
    words = re.split(r"[\s{}.:,=]+", info.lower().lstrip("{. "), maxsplit=1)
    foreign = bool(_OTHER_LANGUAGES.fullmatch(words[0])) and not (_PYTHON.search(content) and _parses(content))
    return [Block(content, "fence", closed, foreign)], resume


def _fence_end(text: str, start: int, fence: str) -> tuple[int, int, bool]:
    """(end of content, where to go on, closed) of the fence whose content begins at `start`.

    The first closing fence ends it, unless a docstring is open there: then the first one that leaves code
    which parses. One at the end of a line of code counts where the code parses up to it and no further.
    """
    run = f"{re.escape(fence[0])}{{{len(fence)},}}"
    tail = rf"{run}[ \t]*(?:</triton>[ \t]*)?$"
    closer = re.compile(rf"^[ \t]*{tail}", re.IGNORECASE | re.MULTILINE)
    ends = [(m.start(), m.end(), True) for m in islice(closer.finditer(text, start), _MAX_CLOSERS)]
    ends.append((len(text), len(text), False))
    glued = re.compile(rf"(?<=[^\s{fence[0]}]){tail}", re.IGNORECASE | re.MULTILINE)
    if glued.search(text, start, ends[0][1]) and not _parses(text[start : ends[0][0]]):
        marks = islice(glued.finditer(text, start, ends[0][1]), _MAX_CLOSERS)
        if mark := next((m for m in marks if _parses(text[start : m.start()])), None):
            return mark.start(), mark.end(), True
    if not _in_docstring(text[start : ends[0][0]]):
        return ends[0]
    return next((end for end in ends[1:] if _parses(text[start : end[0]])), ends[0])


def _in_docstring(code: str) -> bool:
    error = parse(code)
    return isinstance(error, SyntaxError) and "unterminated triple-quoted" in str(error.msg)


def _parses(code: str) -> bool:
    return isinstance(parse(textwrap.dedent(code)), ast.Module)


def _within(content: str, closed: bool, depth: int) -> list[Block]:
    """The blocks marked inside another one, whose end also ends the last of them."""
    inner = [block for block in find_blocks(content, depth + 1) if block.code.strip()]
    if all(block.foreign for block in inner):
        return []
    return [*inner[:-1], replace(inner[-1], closed=inner[-1].closed or closed)]
