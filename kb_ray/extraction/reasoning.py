"""Separates an answer from the thinking that stands in the same text.

Of code it asks one thing: whether a mark stands in a comment or a string of it, and so is none. What a draft inside
the thinking looks like is irrelevant: drafts are never candidates. The marks themselves stand in `thinking_marks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kb_ray.extraction.bare import segments
from kb_ray.extraction.blocks import find_blocks
from kb_ray.extraction.parsing import Parser
from kb_ray.extraction.syntax import ENTRY_PATTERN
from kb_ray.extraction.thinking_marks import MARK, substance_end


@dataclass(frozen=True)
class Split:
    """A model's raw text in two."""

    answer: str
    reasoning: str | None
    """None where there is none."""
    open: bool
    """Whether the text ends inside thinking that was opened and never closed."""


def split_reasoning(text: str, *, cut: bool = False) -> tuple[str, str | None]:
    """(answer, reasoning) of a model's raw text; reasoning is None where there is none.

    `cut` says that the text ends at the token limit. For the rules see `split`.
    """
    found = split(text, Parser(), cut=cut)
    return found.answer, found.reasoning


def split(text: str, parser: Parser, *, cut: bool = False, thought: bool = False) -> Split:
    """A model's raw text in two.

    A closing mark without an opening one makes everything before it reasoning (chat templates often put the opening
    one into the prompt), unless that would leave no answer: where nothing is behind it and the text was not cut
    there; or where the model had thought before (`thought`: elsewhere) and the entry point is defined before the mark
    and not behind it. Thinking that is never closed reaches to the end of the text.
    """
    answer: list[str] = []
    reasoning: list[str] = []
    position, thinking, seen = 0, False, False
    end = len(text) if cut else substance_end(text)
    for tag in _tags(text, parser):
        if (tag["open"] and thinking) or (tag["beginning"] and not thinking):
            continue
        piece = text[position : tag.start()]
        position = tag.end()
        if tag["open"]:
            answer.append(piece)
        elif thinking:
            reasoning.append(piece)
        elif tag.start() >= end or ((thought or seen) and _holds_the_entry_alone(piece, text, position)):
            answer.append(piece)
        else:
            reasoning.extend((*answer, piece))
            answer.clear()
        seen = True
        thinking = bool(tag["open"])
    if not seen:
        return Split(text, None, open=False)
    (reasoning if thinking else answer).append(text[position:])
    thoughts = "\n".join(part.strip() for part in reasoning if part.strip()) or None
    return Split("".join(answer).strip(), thoughts, open=thinking)


def _holds_the_entry_alone(piece: str, text: str, behind: int) -> bool:
    return bool(ENTRY_PATTERN.search(piece)) and not ENTRY_PATTERN.search(text, behind)


def _tags(text: str, parser: Parser) -> list[re.Match[str]]:
    """The marks that are no part of code."""
    tags = list(MARK.finditer(text))
    if not tags:
        return []
    in_code = bytearray(len(text))
    position = 0
    for code in _marked_code(text, parser):
        start = text.find(code, position)
        if start >= 0:
            position = start + len(code)
            in_code[start:position] = b"\1" * len(code)
    if any(_in_line_of_code(text, tag) for tag in tags):
        for code in segments(text, parser):
            start = text.find(code.rstrip("\n")) if ENTRY_PATTERN.search(code) else -1
            if start >= 0:
                in_code[start : start + len(code)] = b"\1" * len(code)
    return [tag for tag in tags if not in_code[tag.end() - 1]]


def _in_line_of_code(text: str, tag: re.Match[str]) -> bool:
    """Whether a mark may stand in a docstring or a comment of plain code."""
    line = text.rfind("\n", 0, tag.start()) + 1
    return text.startswith(("    ", "\t"), line) or text.find("#", line, tag.end()) >= 0


def _marked_code(text: str, parser: Parser) -> Iterator[str]:
    """The marked blocks that hold a mark and parse with it, so that it is a comment or in a string."""
    for block in find_blocks(text, parser):
        if MARK.search(block.code) and parser.parses(block.code):
            yield block.code
