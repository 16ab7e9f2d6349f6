"""A model's answer -> the candidate in it, or why there is none.

Chooses by the syntax tree, never by position alone: the last complete block that defines an entry point,
joined with other blocks only where that resolves names. Code that was clearly meant and does not parse is a
candidate too, so that the verifier reports its syntax error. Pure; runs nothing; judges nothing.
"""

from __future__ import annotations

import ast
import html
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kb_ray.extraction.bare import ends_in_prose, from_first_code_line, indented, segments, split_marks
from kb_ray.extraction.blocks import Block, find_blocks
from kb_ray.extraction.joining import join, without_hollow
from kb_ray.extraction.missing import nothing_found
from kb_ray.extraction.parsing import Parser
from kb_ray.extraction.reasoning import split, split_reasoning
from kb_ray.extraction.renewed import begun_anew
from kb_ray.extraction.syntax import ENTRY_PATTERN, ENTRY_POINTS, Outline
from kb_ray.extraction.typography import (
    normalise,
    out_of_json,
    refenced,
    straighten,
    unquoted,
    without_marks,
    without_prefixes,
)
from kb_ray.extraction.words import without_words
from kb_ray.records import Candidate, Completion, NoCandidate

__all__ = ["WHOLE_FILE", "extract", "split_reasoning"]

WHOLE_FILE = "file"
"""Reason for which an answer ended that is a file of code and no chat: nothing is looked for in it."""
_MAX_BLOCKS = 64
_READINGS = 4
"""How often an answer's characters may be parsed: for its thinking, for its marks, for their content, without them."""
_SUBSTANCE = re.compile(rf"\b(?:def|class|{'|'.join(ENTRY_POINTS)})\b")
"""What no answer can be without, so that others need no reading."""
_ESCAPED = re.compile(r"&(?:lt|gt|amp);")
_ESCAPES = frozenset({"lt", "gt", "amp"})
_CODE_WORDS = ("@triton", "def ", "class ", "import ")


@dataclass(frozen=True)
class Piece:
    """A stretch of code that parses, and the rule that found it."""

    code: str
    rule: str
    outline: Outline


@dataclass(frozen=True)
class Reading:
    """A block and what of it parses: usually the whole, sometimes parts between prose, sometimes nothing."""

    block: Block
    pieces: list[Piece]


def extract(completion: Completion) -> Candidate | NoCandidate:
    """The code that `completion` offers as its answer.

    The rule says how it was found: `triton_tag`, `fence` or `bare`, with `+unclosed` (no end mark),
    `+prose` (prose cut away), `+mended` (indentation or typographic quotes), `+joined` (several blocks), `+partly`
    (an answer that takes more than a few readings was not read whole); `file` where it is no chat. Never raises.
    """
    if completion.finish_reason == WHOLE_FILE and completion.text.strip():
        return Candidate(code=completion.text, rule=WHOLE_FILE)
    parser = Parser()
    found = _found(completion, parser)
    if parser.exhausted and isinstance(found, Candidate):
        return found.model_copy(update={"rule": f"{found.rule}+partly"})
    return found


def _found(completion: Completion, parser: Parser) -> Candidate | NoCandidate:
    raw = normalise(completion.text)
    cut = completion.finish_reason == "length"
    size = _READINGS * len(raw)
    parser.allow(size)
    parts = split(raw, parser, cut=cut, thought=completion.reasoning is not None)
    answer = without_marks(parts.answer)
    open_end = cut and not parts.open
    parser.allow(size)
    every = find_blocks(answer, parser)
    blocks = _last([block for block in every if block.code.strip() and not block.foreign])
    if not _SUBSTANCE.search(answer):
        return nothing_found(answer, parts, completion, bool(blocks), bool(every))
    reader = _Reader(parser)
    parser.allow(size)
    marked = reader.read([b for b in blocks if b.closed or not open_end or ends_in_prose(b.code, parser)])
    if found := reader.complete(marked):
        if open_end and not _ended(blocks[-1], marked) and begun_anew(answer, blocks, found.code):
            return nothing_found(answer, parts, completion, bool(blocks), bool(every))
        return reader.completed(found, answer, marked)
    parser.allow(size)
    whole = not open_end or ends_in_prose(answer, parser)
    bare = reader.read([Block(answer, "bare", closed=True)] if whole else [])
    found = reader.complete(bare) or reader.in_other_notation(answer, blocks, cut) or _broken(marked) or _broken(bare)
    if found:
        return found
    if not cut and (found := _without_entry(marked) or _without_entry(bare)):
        return found
    return nothing_found(answer, parts, completion, bool(blocks), bool(every))


def _ended(last: Block, marked: Sequence[Reading]) -> bool:
    """Whether the last block is open and was read all the same: then the cut is in the prose behind its code."""
    return not last.closed and last is marked[-1].block


def _last(blocks: list[Block]) -> list[Block]:
    """The last of many blocks, and the last with an entry point: a loop behind the answer does not push it out."""
    if len(blocks) <= _MAX_BLOCKS:
        return blocks
    seen = sorted({block.code: index for index, block in enumerate(blocks)}.values())
    meant = [index for index in seen if ENTRY_PATTERN.search(blocks[index].code)]
    return [blocks[index] for index in sorted({*seen[-_MAX_BLOCKS:], *meant[-_MAX_BLOCKS:]})]


@dataclass(frozen=True)
class _Reader:
    """Reads blocks and puts their pieces together, all with one parser."""

    parser: Parser

    def read(self, blocks: Iterable[Block]) -> list[Reading]:
        return [Reading(block, self._parsed(block)) for block in blocks]

    def _parsed(self, block: Block) -> list[Piece]:
        """The block as one piece where it parses, with or without mending; else the code between its prose."""
        rule = _rule(block)
        for code, suffix in _spellings(block.code):
            if piece := self._piece(code.strip("\n") + "\n", rule + suffix):
                return [piece]
        rule = rule if block.rule == "bare" else f"{rule}+prose"
        parts = segments(block.code, self.parser)
        if not parts and (apart := split_marks(block.code)) != block.code:
            parts = segments(apart, self.parser)
        if not parts and (plain := html.unescape(block.code)) != block.code:
            parts, rule = segments(plain, self.parser), f"{rule}+mended"
        found = [piece for part in parts if (piece := self._piece(part, rule))]
        if not found and block.rule == "bare":
            # The bodies of broken functions are indented too: only a run with an entry point is an answer.
            runs = [self._piece(run, f"{rule}+mended") for run in indented(block.code)]
            found = [piece for piece in runs if piece and piece.outline.entry]
        return found

    def _piece(self, code: str, rule: str) -> Piece | None:
        """Code that parses, without the words in it that are none; None where it does not parse."""
        if (plain := self._unescaped(code)) != code:
            code, rule = plain, rule if rule.endswith("+mended") else f"{rule}+mended"
        shape, tree = self.parser.outline(code), self.parser.tree(code)
        if shape is None or not isinstance(tree, ast.Module):
            return None
        kept = without_words(code, tree, shape).strip("\n") + "\n"
        if kept == code or not (shape := self.parser.outline(kept)):
            return Piece(code, rule, shape) if shape else None
        return Piece(kept, rule if rule.startswith("bare") or "+prose" in rule else f"{rule}+prose", shape)

    def _unescaped(self, code: str) -> str:
        """The code with what was escaped for HTML made plain, where it parses even so: `a &lt; b` is `a & lt; b`.

        Known by names that nothing defines, and that are gone once it is plain: in strings they would be no names.
        """
        shape = self.parser.outline(code) if _ESCAPED.search(code) else None
        escaped = _ESCAPES & (shape.uses - shape.defines) if shape else frozenset[str]()
        if not escaped:
            return code
        plain = html.unescape(code)
        rest = self.parser.outline(plain)
        return plain if rest and not escaped & rest.uses else code

    def complete(self, readings: Sequence[Reading]) -> Candidate | None:
        """The last piece with an entry point; one that leads to a kernel before one that does not."""
        given = [piece for reading in readings for piece in reading.pieces]
        pieces = without_hollow([(piece.code, piece.outline) for piece in given], self.parser)
        fallback: Candidate | None = None
        for index in reversed(range(len(pieces))):
            code, shape = pieces[index]
            if not shape.entry or shape.stub:
                continue
            joined = join(pieces, index)
            rule = given[index].rule if joined == code else f"{given[index].rule}+joined"
            whole = shape if joined == code else self.parser.outline(joined)
            if whole and whole.kernel:
                return Candidate(code=joined, rule=rule)
            fallback = fallback or Candidate(code=joined, rule=rule)
        return fallback

    def completed(self, found: Candidate, answer: str, marked: Sequence[Reading]) -> Candidate:
        """A candidate with what it lacks from the plain text around the blocks, where that has functions for it."""
        shape = self.parser.outline(found.code)
        if shape is None or not shape.lacks:
            return found
        around = answer
        for reading in marked:
            around = around.replace(reading.block.code, "", 1)
        plain = self.read([Block(around, "bare", closed=True)])
        offered = {name for piece in plain[0].pieces for name in piece.outline.functions}
        return (self.complete([*plain, *marked]) or found) if offered & shape.lacks else found

    def in_other_notation(self, answer: str, blocks: Sequence[Block], cut: bool) -> Candidate | None:
        """The code of an answer that is a quotation, a JSON object, or fenced by quotes; None beside other blocks."""
        for plain in (unquoted(answer), out_of_json(answer), refenced(answer)):
            if cut or blocks or plain == answer:
                continue
            inner = find_blocks(plain, self.parser)[-_MAX_BLOCKS:] or [Block(plain, "bare", closed=True)]
            if found := self.complete(self.read(inner)):
                return found.model_copy(update={"rule": f"{found.rule}+mended"})
        return None


def _spellings(code: str) -> Iterator[tuple[str, str]]:
    """The code as it stands, then with what editors and front ends did to it mended, each with its suffix."""
    yield code, ""
    yield textwrap.dedent(code), "+mended"
    for mend in (straighten, html.unescape, without_prefixes):
        mended = code if mend is straighten and code.isascii() else mend(code)
        if mended != code:
            yield mended, "+mended"
            yield textwrap.dedent(mended), "+mended"


def _broken(readings: Sequence[Reading]) -> Candidate | None:
    """The last block that was meant as the answer and does not parse."""
    failing = [reading.block for reading in readings if not reading.pieces]
    meant = [block for block in failing if ENTRY_PATTERN.search(block.code)]
    if not meant:
        meant = [b for b in failing if b.rule != "bare" and any(word in b.code for word in _CODE_WORDS)]
    if not meant:
        return None
    block = meant[-1]
    code = from_first_code_line(block.code) if block.rule == "bare" else block.code
    return Candidate(code=code.strip("\n") + "\n", rule=_rule(block))


def _rule(block: Block) -> str:
    return block.rule if block.closed else f"{block.rule}+unclosed"


def _without_entry(readings: Sequence[Reading]) -> Candidate | None:
    """Code that defines something but no entry point: the verifier says what is missing."""
    pieces = [piece for reading in readings for piece in reading.pieces]
    for wanted in ("kernel", "substance"):
        for piece in reversed(pieces):
            if piece.outline.substance and getattr(piece.outline, wanted):
                return Candidate(code=piece.code, rule=piece.rule)
    return None
