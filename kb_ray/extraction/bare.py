"""Code that stands in prose without any mark around it, cut out at the lines where the prose begins.

Works on whole top-level statements, each parsed once: what does not parse is dropped if it reads like prose, and if
it reads like code nothing is cut out at all, so that a broken function is never silently removed from an answer.
"""

from __future__ import annotations

import ast
import re
import textwrap

from kb_ray.extraction.parsing import Parser

CODE_START = re.compile(
    r"^(?:import \w|from [\w.]+ import\b|@\w|def \w|class \w|if __name__"
    r"|[A-Za-z_]\w*(?::[^=\n]+)? ?= ?[^=\s])"
)
_CODE_LIKE = re.compile(r"^\s*(?:@triton\b|def \w+\s*\(|class \w+\s*[(:])|^(?: {4,}|\t)(?![-*+•\d])\S")
# The line that follows code when an answer was cut: at least two words, or the beginning of a closing mark.
_PROSE = re.compile(r"\S+ +\S|</|`")
_MAYBE_CODE = re.compile(
    r"\s|@|(?:async|class|def|del|for|from|global|if|import|raise|return|try|while|with)\b|\w+\s*[=(\[.]"
)
_GLUED = re.compile(r"(?<=[^\s`])(`{3,})[ \t]*$", re.MULTILINE)
_CONTINUES = re.compile(r"[\s#)\]}]|(?:else|finally)\s*:|(?:elif|except)\b.*:\s*(?:#.*)?$")
"""A line that belongs to the statement before it: indented, a comment, a closing bracket, another branch."""
_UNFINISHED = re.compile(r"was never closed|unexpected EOF|expected an indented block")
_QUOTES = re.compile(r"\"{3}|'{3}")
_MAX_PIECES = 40
"""Lines at the left margin that one statement may have, as in brackets or behind a backslash."""


def segments(text: str, parser: Parser) -> list[str]:
    """The stretches of code in `text`, each of which parses; none where broken code stands between them."""
    lines = text.split("\n")
    return ["\n".join(lines[start:end]).rstrip() + "\n" for start, end in _stretches(lines, parser)]


def ends_in_prose(text: str, parser: Parser) -> bool:
    """Whether text that was cut holds code and was cut after it, in prose or in a mark that closes the code."""
    lines = text.split("\n")
    found = _stretches(lines, parser)
    rest = [line for line in lines[found[-1][1] :] if line.strip()] if found else []
    return bool(rest) and not _MAYBE_CODE.match(rest[0]) and bool(_PROSE.match(rest[0]))


def split_marks(text: str) -> str:
    """The text with fence marks at the end of a line of code on a line of their own."""
    return _GLUED.sub("\n\\1", text)


def _stretches(lines: list[str], parser: Parser) -> list[tuple[int, int]]:
    """(first line, line behind the last) of each stretch of code; see `segments`."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(lines):
        end = _stretch(lines, start, parser) if CODE_START.match(lines[start]) else start
        if end > start:
            found.append((start, end))
            start = end
            continue
        if _CODE_LIKE.match(lines[start]):
            return []
        start += 1
    return found


def indented(text: str) -> list[str]:
    """Stretches of lines that are indented as Markdown indents code, without that indentation."""
    runs = re.findall(r"(?:^(?: {4}|\t).*\n?|^[ \t]*\n)+", text, re.MULTILINE)
    return [textwrap.dedent(run).strip("\n") + "\n" for run in runs if run.strip()]


def from_first_code_line(text: str) -> str:
    """The text from the first line that looks like code, for showing a syntax error in it."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if CODE_START.match(line)), 0)
    return "\n".join(lines[first:])


def _stretch(lines: list[str], start: int, parser: Parser) -> int:
    """The line behind the last statement from `start` on that parses; `start` where the first one does not."""
    while start < len(lines) and (end := _statement(lines, start, parser)) is not None:
        start = end
    return start


def _statement(lines: list[str], start: int, parser: Parser) -> int | None:
    """The line behind the statement that begins at `start`, with the comments behind it; None where none parses."""
    end = _next(lines, start)
    for _ in range(_MAX_PIECES):
        code = "\n".join(lines[start:end])
        result = parser.tree(code)
        if isinstance(result, ast.Module):
            return end
        if result is None:
            return None
        stray = start + (result.lineno or 1) - 1
        if "unmatched" in str(result.msg) and start < stray < end:
            end = stray  # a bracket of the prose behind the code, as that of `\\boxed{`
            continue
        if end >= len(lines):
            return None
        opened = parser.open_string(code)
        if opened is None and not _UNFINISHED.search(str(result.msg)):
            return None
        end = _next(lines, end) if opened is None else _behind_string(lines, start, end, code[opened:])
    return None


def _next(lines: list[str], start: int) -> int:
    """The next line behind `start` at which a statement can begin."""
    end = start
    while end < len(lines) and lines[end].startswith("@"):
        end += 1
    end += 1
    while end < len(lines) and (not lines[end].strip() or _CONTINUES.match(lines[end])):
        end += 1
    return min(end, len(lines))


def _behind_string(lines: list[str], start: int, end: int, opened: str) -> int:
    """The next line at which a statement can begin once a triple-quoted string that is open at `end` has ended."""
    quote = _QUOTES.search(opened)
    while quote and end < len(lines) and quote[0] not in lines[end]:
        end += 1
    return _next(lines, end)
