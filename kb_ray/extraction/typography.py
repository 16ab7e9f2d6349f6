"""Mends what word processors and chat front ends do to code: newlines, invisible characters, smart quotes.

`normalise` is always safe. `straighten` changes characters outside string literals and comments only, and is
meant for code that does not parse otherwise. Knows nothing of Python beyond where strings and comments end.
"""

from __future__ import annotations

import re

_OPENERS = {"“": '"', "”": '"', "„": '"', "«": '"', "‘": "'", "’": "'", "‚": "'"}
_CLOSERS = {'"': '"“”»', "'": "'‘’"}
_PLAIN = {
    "\u00a0": " ",  # no-break space
    "\u202f": " ",
    "\u3000": " ",
    "\u2028": "\n",
    "\u2212": "-",  # minus sign
    "\u2013": "-",
    "\u00d7": "*",
    "\u2026": "...",
}
_PLAIN |= {chr(code + 0xFEE0): chr(code) for code in range(ord("!"), ord("~") + 1)}  # full-width forms
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"))


# A model's own end marks (`<|im_end|>`), at the end of a line: in code they stand between quotes.
_END_MARK = re.compile(r"<[|｜][\w▁]{2,40}[|｜]>(?=[ \t]*$)", re.MULTILINE)
_QUOTE = re.compile(r"^>[ \t]?", re.MULTILINE)


def normalise(text: str) -> str:
    """The text with `\\n` newlines, without byte order mark and end marks, and with no half of a surrogate pair."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return _END_MARK.sub("", text.encode("utf-8", "replace").decode("utf-8"))


def unquoted(text: str) -> str:
    """The text without the `>` that Markdown quotes lines with."""
    return _QUOTE.sub("", text)


def straighten(code: str) -> str:
    """Code with typographic quotes, dashes and spaces made plain, except inside strings and comments."""
    out: list[str] = []
    position = 0
    while position < len(code):
        end = _literal_end(code, position)
        if end is not None:
            out.append(_plain_quotes(code[position:end]))
        else:
            end = position + 1
            char = code[position]
            out.append(_PLAIN.get(char, char).translate(_INVISIBLE))
        position = end
    return "".join(out)


def _literal_end(code: str, start: int) -> int | None:
    """Where the string or comment that begins at `start` ends; None where neither begins there."""
    char = code[start]
    if char == "#":
        newline = code.find("\n", start)
        return len(code) if newline < 0 else newline
    quote = _OPENERS.get(char, char)
    if quote not in _CLOSERS:
        return None
    if code.startswith(char * 3, start) and char == quote:
        end = code.find(quote * 3, start + 3)
        return len(code) if end < 0 else end + 3
    closers = quote if char == quote else _CLOSERS[quote]
    position = start + 1
    while position < len(code) and code[position] != "\n":
        if code[position] == "\\":
            position += 2
            continue
        if code[position] in closers:
            return position + 1
        position += 1
    return min(position, len(code))


def _plain_quotes(literal: str) -> str:
    """The literal with plain quotes around it where typographic ones stood; its content is kept."""
    quote = _OPENERS.get(literal[0])
    if quote is None:
        return literal
    closed = len(literal) > 1 and literal[-1] in _CLOSERS[quote]
    return quote + literal[1:-1] + quote if closed else quote + literal[1:]
