"""Mends what templates, editors and chat front ends do to code: marks, newlines, invisible characters, smart quotes.

`normalise` is always safe. `straighten` changes characters outside string literals and comments only, and is
meant for code that does not parse otherwise. Knows nothing of Python beyond where strings and comments end.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise

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


# Marks that chat templates put around an answer, and tags that a model puts around its code, where they are left in
# the text: at the end of a line (in code they stand between quotes), or glued to what begins a line.
_TAGS = "answer|response|solution|final_answer|code|pre|python|parameter|function|tool_call"
_SPECIAL = r"<[|｜][\w▁]{2,40}[|｜]>|</?s>|<(?:eos|bos|pad)>|<(?:start|end)_of_turn>|<turn\|>"
_END_MARK = re.compile(rf"(?:{_SPECIAL}|\[/INST\]|\[(?:EOS|\|endofturn\|)\]|</(?:{_TAGS})>)[ \t]*", re.IGNORECASE)
_BEGIN_MARKS = re.compile(
    rf"^[ \t]*(?:{_SPECIAL}|<(?:{_TAGS})(?: [^<>\n]*)?>)+(?=[^\s<]|<triton)", re.IGNORECASE | re.MULTILINE
)
_NEXT_TURN = re.compile(
    r"<\|im_start\|>user|<\|start_header_id\|>user|<start_of_turn>user|<\|turn>user|<\|user\|>|<｜User｜>|^\[INST\]",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTE = re.compile(r"^>[ \t]?", re.MULTILINE)
# What editors and shells put in front of every line: its number, a prompt.
_QUOTED_FENCE = re.compile(r"^(?:\'{3}|\"{3}|“{3}|”{3}|``)(?:python|py|triton)?[ \t]*$", re.IGNORECASE | re.MULTILINE)
_MAX_JSON_DEPTH = 6
_DIFF = ("+", " ", "-", "@", "\\", "")
_NUMBER = re.compile(r" *(\d+)(?: |$)")
_PREFIXES = (re.compile(r" *\d+(?: ?[|:│] ?|\t|  |$)"), re.compile(r"(?:>>>|\.\.\.)(?: |$)"))


def normalise(text: str) -> str:
    """The text with `\\n` newlines, without byte order mark, and with no half of a surrogate pair."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return text.encode("utf-8", "replace").decode("utf-8")


def without_marks(answer: str) -> str:
    """An answer without a chat template's marks, and without the next user's turn where a model wrote that too."""
    turn = _NEXT_TURN.search(answer)
    if turn and answer[: turn.start()].strip():
        answer = answer[: turn.start()]
    return _BEGIN_MARKS.sub("", "\n".join(map(_without_end_marks, answer.split("\n"))))


def _without_end_marks(line: str) -> str:
    """A line without the run of marks that it ends in. One pass: a pattern for the run would try it from every mark."""
    begin = end = 0
    for mark in _END_MARK.finditer(line):
        begin, end = (begin if mark.start() == end and end else mark.start()), mark.end()
    return line[:begin] if end == len(line) and end else line


def unquoted(text: str) -> str:
    """The text without the `>` that Markdown quotes lines with."""
    return _QUOTE.sub("", text)


def refenced(text: str) -> str:
    """The text with fences where triple quotes, straight or typographic, stand alone on a line as if they were some."""
    return _QUOTED_FENCE.sub("```", text)


def out_of_json(text: str) -> str:
    """The texts of several lines in the JSON object that `text` holds, however deep; the text itself where none is."""
    return "\n\n".join(_texts(text)) or text


def _texts(value: object, depth: int = 0) -> list[str]:
    if depth > _MAX_JSON_DEPTH:
        return []
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [text for one in inner for text in _texts(one, depth + 1)]
    if not isinstance(value, str):
        return []
    start, end = value.find("{"), value.rfind("}")
    try:
        found = json.loads(value[start : end + 1], strict=False) if 0 <= start < end else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return _texts(found, depth + 1)
    return [value] if depth and "\n" in value else []


def without_prefixes(code: str) -> str:
    """Code without the line numbers, prompts or marks of a diff that stand in front of each of its lines."""
    lines = code.strip("\n").split("\n")
    for prefix in _PREFIXES:
        if all(prefix.match(line) or not line.strip() for line in lines):
            return "\n".join(prefix.sub("", line, count=1) for line in lines) + "\n"
    numbers = [_NUMBER.match(line) for line in lines if line.strip()]
    if all(numbers) and _ascend([int(number[1]) for number in numbers if number]):
        return "\n".join(_NUMBER.sub("", line, count=1) for line in lines) + "\n"
    if any(line.startswith("+") for line in lines) and all(line[:1] in _DIFF for line in lines):
        return "\n".join(line[1:] for line in lines if line[:1] in " +" and not line.startswith("+++ ")) + "\n"
    return code


def _ascend(numbers: list[int]) -> bool:
    return all(less < more for less, more in pairwise(numbers))


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
