"""Finds the pieces of an answer that are marked as code: `<triton>` tags and fences, nested either way.

Knows Markdown and the tag, and asks the parser one thing only: whether a mark that may stand in a string or comment
does so. Which piece is the answer is not decided here.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import islice

from kb_ray.extraction.parsing import Parser

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
_LABEL = re.compile(
    rf"\s*\{{?\.?(?:py\w*|triton|text|txt|plain\w*|code|ipython|md|markdown|{_OTHER_LANGUAGES.pattern})(?![\w+])",
    re.IGNORECASE,
)
"""An info string that labels a block, where prose might stand behind a mark that was meant to close one."""
_PYTHON = re.compile(r"^[ \t]*(?:@triton\b|def \w+ *\(|class \w+ *[(:]|import (?:torch|triton)\b)", re.MULTILINE)
_ADDED = re.compile(r"^\+(?:class ModelNew|def triton_kernel_wrapper)\b", re.MULTILINE)
_BEGUN = re.compile(
    r"^[ \t]*(?:@\w|def \w+ *\(|class \w+ *[(:]|import \w+(?: as|[ \t]*$)|from [\w.]+ import )", re.MULTILINE
)
_CLOSER = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*(?:</triton>[ \t]*)?$", re.IGNORECASE | re.MULTILINE)
_GLUED = re.compile(r"(?<=[^\s`~])(`{3,}|~{3,})[ \t]*(?:</triton>[ \t]*)?$", re.IGNORECASE | re.MULTILINE)
_QUOTES = re.compile(r"\"{3}|'{3}")
_QUOTING = re.compile(r"[#\"']")
_WORD = re.compile(r"\S")
_MAX_GLUED = 16
_MAX_STRINGS = 8
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


End = tuple[int, int, bool]
"""End of a content, where to go on, and whether a mark ended it."""


def find_blocks(text: str, parser: Parser, depth: int = 0) -> list[Block]:
    """All marked blocks in order of appearance; of nested ones the innermost that hold the code.

    `depth` counts the marks around `text`; below the fourth nothing is looked for. Where the parser may read no
    more, a block ends at the first mark that can end it.
    """
    if depth >= _MAX_DEPTH:
        return []
    closers = Closers(text)
    blocks: list[Block] = []
    position = 0
    while mark := _MARK.search(text, position):
        if mark["tag"]:
            found, position = _tagged(text, mark, closers, parser, depth)
        else:
            found, position = _fenced(text, mark, closers, parser, depth)
        blocks.extend(found)
    return blocks


class Closers:
    """The lines of a text that can close a fence, looked up by the fence they close, and its closing tags."""

    def __init__(self, text: str) -> None:
        self._size = len(text)
        self._all = [(m.start(), m.end(), m[1]) for m in _CLOSER.finditer(text)]
        self._by_fence: dict[str, list[tuple[int, int]]] = {}
        self._tags = [m.span() for m in _CLOSE_TAG.finditer(text)]

    def first(self, fence: str, start: int) -> End:
        """The first one at or behind `start` that closes `fence`; the end of the text where none does."""
        if fence not in self._by_fence:
            self._by_fence[fence] = [(begin, end) for begin, end, run in self._all if run.startswith(fence)]
        spans = self._by_fence[fence]
        index = bisect_left(spans, (start, start))
        return (*spans[index], True) if index < len(spans) else (self._size, self._size, False)

    def tags(self, start: int) -> list[tuple[int, int]]:
        """The first closing tags at or behind `start`, a few of them."""
        index = bisect_left(self._tags, (start, start))
        return self._tags[index : index + _MAX_STRINGS]


def _tagged(text: str, mark: re.Match[str], closers: Closers, parser: Parser, depth: int) -> tuple[list[Block], int]:
    """The block behind a `<triton>` tag, or the fences in it, and where to go on.

    A tag in one of the code's strings or comments ends nothing: it stands there if code that parses goes on behind it.
    """
    found = _end_of_tag(text, mark.end(), closers)
    if _may_be_quoted(text, mark.end(), found[0], parser):
        found = _behind_quoted(text, mark.end(), found, closers, parser) or found
    end, resume, closed = found
    content = text[mark.end() : end]
    first = _MARK.search(content)
    if first and not parser.parses(content) and (inner := _within(content, closed, parser, depth)):
        if _begun(content[: first.start()], parser):
            inner.insert(0, Block(content[: first.start()], "triton_tag", closed=True))
        return [replace(block, rule="triton_tag") for block in inner], resume
    return [Block(content, "triton_tag", closed)], resume


def _end_of_tag(text: str, start: int, closers: Closers) -> End:
    """The first tag behind `start`, closing or opening; the end of the text where there is none."""
    again = _REOPEN_TAG.search(text, start)
    limit = again.start() if again else len(text)
    close = closers.tags(start)
    return (*close[0], True) if close and close[0][0] < limit else (limit, limit, again is not None)


def _may_be_quoted(text: str, start: int, end: int, parser: Parser) -> bool:
    """Whether a tag at `end` may stand in a comment or string of the code that begins at `start`."""
    if end == len(text) or parser.exhausted:
        return False
    if _QUOTING.search(text, max(text.rfind("\n", start, end), start), end):
        return True
    return bool(_QUOTES.search(text, start, end)) and parser.open_string(text[start:end]) is not None


def _behind_quoted(text: str, start: int, quoted: End, closers: Closers, parser: Parser) -> End | None:
    """Where code ends that has a tag in it; None where it does not parse up to any later end."""
    for begin, resume in closers.tags(quoted[0] + 1):
        if parser.parses(text[start:begin]):
            return begin, resume, True
    fence = _MARK.search(text, start, quoted[0])
    if fence and fence["fence"]:
        inside = fence.end() + 1
        end, _, closed = closers.first(fence["fence"], inside)
        return _end_of_tag(text, end, closers) if closed and parser.parses(text[inside:end]) else None
    going_on = _WORD.search(text, quoted[1]) and parser.parses(text[start:])
    return (len(text), len(text), False) if going_on else None


def _fenced(text: str, mark: re.Match[str], closers: Closers, parser: Parser, depth: int) -> tuple[list[Block], int]:
    """The block behind an opening fence, or what is marked within it, and where to go on.

    A mark behind code that no string is open in cannot be a part of it: it ends the fence, closed or not.
    """
    start = min(mark.end() + 1, len(text))
    info = mark["info"].strip()
    first_line = info + "\n" if _CODE_IN_INFO.match(info) else ""
    end, resume, closed = closers.first(mark["fence"], start)
    inner = _labelled(text, start, end)
    limit = end if inner is None else inner
    behind = _behind_string(text, start, limit, mark["fence"], closers, parser, example=inner is not None)
    if glued := _glued(text, start, limit, mark["fence"][0], parser):
        end, resume, closed = glued
    elif behind:
        end, resume, closed = behind
    elif inner is not None and _begun(text[start:limit], parser):
        end, resume, closed = limit, limit, True
    content = first_line + text[start:end]
    nested = not behind and _MARK.search(content) and not parser.parses(content)
    if nested and (found := _within(content, closed, parser, depth)):
        return found, resume
    words = re.split(r"[\s{}.:,=]+", info.lower().lstrip("{. "), maxsplit=1)
    labelled = bool(_OTHER_LANGUAGES.fullmatch(words[0]))
    foreign = labelled and not (_PYTHON.search(content) and parser.parses(content)) and not _ADDED.search(content)
    return [Block(content, "fence", closed, foreign)], resume


def _begun(head: str, parser: Parser) -> bool:
    """Whether text in front of a mark holds code, and no open string that the mark would be a part of."""
    return bool(_BEGUN.search(head)) and parser.open_string(head) is None


def _glued(text: str, start: int, limit: int, char: str, parser: Parser) -> End | None:
    """The closing fence at the end of a line of code, where the code parses up to it and no further."""
    marks = list(islice((m for m in _GLUED.finditer(text, start, limit) if m[1][0] == char), _MAX_GLUED))
    if not marks or parser.parses(text[start:limit]):
        return None
    return next(((m.start(), m.end(), True) for m in marks if parser.parses(text[start : m.start()])), None)


def _behind_string(
    text: str, start: int, limit: int, fence: str, closers: Closers, parser: Parser, *, example: bool
) -> End | None:
    """Where a fence ends whose first end lies in an open string: behind that string.

    Only if code that parses ends there, or if the first mark in the string opens a fence (`example`), as those in a
    docstring do: a mark that could close one may as well do so, and the string have been left open.
    """
    end: End = (limit, limit, True)
    for _ in range(_MAX_STRINGS):
        content = text[start : end[0]]
        opened = parser.open_string(content)
        if opened is None:
            return end if end[0] > limit and (example or parser.parses(content)) else None
        quote = _QUOTES.search(text, start + opened)
        close = text.find(quote[0], quote.end()) if quote else -1
        if close < 0:
            return None
        end = closers.first(fence, close + 3)
        again = _labelled(text, close + 3, end[0])
        end = end if again is None else (again, again, True)
    return None


def _labelled(text: str, start: int, end: int) -> int | None:
    """Where the first mark stands that can only open a block."""
    marks = _MARK.finditer(text, start, end)
    return next((m.start() for m in marks if m["tag"] or _LABEL.match(m["info"])), None)


def _within(content: str, closed: bool, parser: Parser, depth: int) -> list[Block]:
    """The blocks marked inside another one, whose end also ends the last of them."""
    inner = [block for block in find_blocks(content, parser, depth + 1) if block.code.strip()]
    if all(block.foreign for block in inner):
        return []
    return [*inner[:-1], replace(inner[-1], closed=inner[-1].closed or closed)]
