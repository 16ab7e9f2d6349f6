"""Separates an answer from the thinking that stands in the same text.

Knows the tags models think in. Of code it asks one thing: whether a tag stands in a comment or a string of it,
and so is none. What a draft inside the thinking looks like is irrelevant: drafts are never candidates.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from kb_ray.extraction.bare import segments
from kb_ray.extraction.blocks import find_blocks
from kb_ray.extraction.syntax import ENTRY_PATTERN, parse

_NAMES = "think|thinking|reasoning|thought"
# An opening tag starts or ends its line or follows a sentence, so that prose about `<think>` in mid-sentence is
# not taken for one. A closing tag may stand anywhere but in inline code: one backtick on either side (a fence has
# more). Models that think in channels leave their marks where a server does not take them out.
_OPEN = rf"^[ \t]*<(?:{_NAMES})>|(?<=[.!?])[ \t]*<(?:{_NAMES})>(?!`)|(?<!`)<(?:{_NAMES})>(?=[ \t]*$)"
_TAG = re.compile(
    rf"(?P<open>{_OPEN}|<\|channel\|>analysis<\|message\|>)"
    rf"|(?<!(?<!`)`)</(?:{_NAMES})>|</(?:{_NAMES})>(?!`)"
    r"|(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>",
    re.IGNORECASE | re.MULTILINE,
)
_IN_CODE = re.compile(r" {4}|\t|[^\n]*#")
"""The beginning of a line of plain code where a tag may stand in a docstring or a comment."""


def split_reasoning(text: str) -> tuple[str, str | None]:
    """(answer, reasoning) of a model's raw text; reasoning is None where there is none.

    A closing tag without an opening one makes everything before it reasoning (chat templates often put the
    opening tag into the prompt). Thinking that is never closed reaches to the end of the text.
    """
    answer: list[str] = []
    reasoning: list[str] = []
    position, thinking, seen = 0, False, False
    for tag in _tags(text):
        if tag["open"] and thinking:
            continue
        seen = True
        piece = text[position : tag.start()]
        position = tag.end()
        if tag["open"]:
            answer.append(piece)
        elif thinking:
            reasoning.append(piece)
        else:
            reasoning.extend((*answer, piece))
            answer.clear()
        thinking = bool(tag["open"])
    if not seen:
        return text, None
    (reasoning if thinking else answer).append(text[position:])
    return "".join(answer).strip(), "\n".join(part.strip() for part in reasoning if part.strip()) or None


def unclosed_reasoning(text: str) -> bool:
    """Whether the text ends inside thinking that was opened and never closed."""
    tags = _tags(text)
    return bool(tags) and tags[-1]["open"] is not None


def _tags(text: str) -> list[re.Match[str]]:
    """The tags that are no part of code."""
    tags = list(_TAG.finditer(text))
    if not tags:
        return []
    in_code = bytearray(len(text))
    position = 0
    for code in _marked_code(text):
        start = text.find(code, position)
        if start >= 0:
            position = start + len(code)
            in_code[start:position] = b"\1" * len(code)
    if any(_IN_CODE.match(text[text.rfind("\n", 0, tag.start()) + 1 : tag.end()]) for tag in tags):
        for code in segments(text):
            start = text.find(code.rstrip("\n")) if ENTRY_PATTERN.search(code) else -1
            if start >= 0:
                in_code[start : start + len(code)] = b"\1" * len(code)
    return [tag for tag in tags if not in_code[tag.end() - 1]]


def _marked_code(text: str) -> Iterator[str]:
    """The marked blocks that hold a tag and parse with it, so that it is a comment or in a string."""
    for block in find_blocks(text):
        if _TAG.search(block.code) and isinstance(parse(textwrap.dedent(block.code)), ast.Module):
            yield block.code
