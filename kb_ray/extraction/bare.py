"""Code that stands in prose without any mark around it, cut out at the lines where the prose begins.

Works on whole top-level statements: what does not parse is dropped if it reads like prose, and if it reads
like code nothing is cut out at all, so that a broken function is never silently removed from an answer.
"""

from __future__ import annotations

import re
import textwrap

from kb_ray.extraction.syntax import parse

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
_MAX_PARSES = 200


def segments(text: str) -> list[str]:
    """The stretches of code in `text`, each of which parses; none where broken code stands between them."""
    lines = text.split("\n")
    return ["\n".join(lines[start:end]).rstrip() + "\n" for start, end in _stretches(lines)]


def ends_in_prose(text: str) -> bool:
    """Whether text that was cut holds code and was cut after it, in prose or in a mark that closes the code."""
    lines = text.split("\n")
    found = _stretches(lines)
    rest = [line for line in lines[found[-1][1] :] if line.strip()] if found else []
    return bool(rest) and not _MAYBE_CODE.match(rest[0]) and bool(_PROSE.match(rest[0]))


def split_marks(text: str) -> str:
    """The text with fence marks at the end of a line of code on a line of their own."""
    return _GLUED.sub("\n\\1", text)


def _stretches(lines: list[str]) -> list[tuple[int, int]]:
    """(first line, line behind the last) of each stretch of code; see `segments`."""
    found: list[tuple[int, int]] = []
    budget = _MAX_PARSES
    start = 0
    while start < len(lines) and budget > 0:
        if not CODE_START.match(lines[start]):
            if _CODE_LIKE.match(lines[start]):
                return []
            start += 1
            continue
        end, parses = _longest(lines, start, budget)
        budget -= parses
        if end == start:
            if _CODE_LIKE.match(lines[start]):
                return []
            start += 1
        else:
            found.append((start, end))
            start = end
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


def _longest(lines: list[str], start: int, budget: int) -> tuple[int, int]:
    """(end, parses spent): lines[start:end] parses and ends before the statement that does not."""
    end = len(lines)
    for spent in range(1, budget + 1):
        result = parse("\n".join(lines[start:end]))
        if result is None:
            return start, spent
        if not isinstance(result, SyntaxError):
            return end, spent
        failing = min(start + (result.lineno or 1) - 1, end - 1)
        end = next((i for i in range(failing, start, -1) if _begins_statement(lines[i])), start)
        if end == start:
            return start, spent
    return start, budget


def _begins_statement(line: str) -> bool:
    return bool(line) and not line[0].isspace()
