"""A model's answer -> the candidate in it, or why there is none.

Chooses by the syntax tree, never by position alone: the last complete block that defines an entry point,
joined with other blocks only where that resolves names. Code that was clearly meant and does not parse is a
candidate too, so that the verifier reports its syntax error. Pure; runs nothing; judges nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kb_ray.extraction.bare import ends_in_prose, from_first_code_line, indented, segments, split_marks
from kb_ray.extraction.blocks import Block, find_blocks
from kb_ray.extraction.joining import join
from kb_ray.extraction.reasoning import split_reasoning, unclosed_reasoning
from kb_ray.extraction.syntax import ENTRY_PATTERN, ENTRY_POINTS, Outline, outline
from kb_ray.extraction.typography import normalise, straighten, unquoted
from kb_ray.records import Candidate, Completion, NoCandidate

__all__ = ["extract", "split_reasoning"]

_MAX_BLOCKS = 64
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
    `+prose` (prose cut away), `+mended` (indentation or typographic quotes), `+joined` (several blocks).
    Never raises.
    """
    raw = normalise(completion.text)
    answer = split_reasoning(raw)[0]
    cut = completion.finish_reason == "length"
    open_end = cut and not unclosed_reasoning(raw)
    blocks = [b for b in find_blocks(answer)[-_MAX_BLOCKS:] if b.code.strip() and not b.foreign]
    marked = _read([block for block in blocks if block.closed or not open_end or ends_in_prose(block.code)])
    found = _complete(marked)
    if found:
        return found
    bare = _read([Block(answer, "bare", closed=True)] if not open_end or ends_in_prose(answer) else [])
    found = _complete(bare) or _in_quotation(answer, blocks, cut) or _broken(marked) or _broken(bare)
    if found:
        return found
    if cut:
        return _cut_off(answer, raw)
    return _without_entry(marked) or _without_entry(bare) or _nothing(answer, raw, bool(blocks))


def _read(blocks: Iterable[Block]) -> list[Reading]:
    return [Reading(block, _parsed(block)) for block in blocks]


def _parsed(block: Block) -> list[Piece]:
    """The block as one piece where it parses, with or without mending; else the code between its prose."""
    rule = _rule(block)
    for code, suffix in _spellings(block.code):
        if shape := outline(code):
            return [Piece(code.strip("\n") + "\n", rule + suffix, shape)]
    rule = rule if block.rule == "bare" else f"{rule}+prose"
    parts = segments(block.code)
    if not parts and (apart := split_marks(block.code)) != block.code:
        parts = segments(apart)
    found = [Piece(part, rule, shape) for part in parts if (shape := outline(part))]
    if not found and block.rule == "bare":
        # The bodies of broken functions are indented too: only a run with an entry point is an answer.
        outlines = [(run, outline(run)) for run in indented(block.code)]
        found = [Piece(run, f"{rule}+mended", shape) for run, shape in outlines if shape and shape.entry]
    return found


def _spellings(code: str) -> Iterator[tuple[str, str]]:
    """The code as it stands, then with its indentation and its typography mended, each with its suffix."""
    yield code, ""
    yield textwrap.dedent(code), "+mended"
    if not code.isascii():
        straight = straighten(code)
        yield straight, "+mended"
        yield textwrap.dedent(straight), "+mended"


def _complete(readings: Sequence[Reading]) -> Candidate | None:
    """The last piece with an entry point; one that leads to a kernel before one that does not."""
    pieces = [piece for reading in readings for piece in reading.pieces]
    fallback: Candidate | None = None
    for index in reversed(range(len(pieces))):
        piece = pieces[index]
        if not piece.outline.entry or piece.outline.stub:
            continue
        joined = join([(p.code, p.outline) for p in pieces], index)
        rule = piece.rule if joined == piece.code else f"{piece.rule}+joined"
        shape = outline(joined)
        if shape and shape.kernel:
            return Candidate(code=joined, rule=rule)
        fallback = fallback or Candidate(code=joined, rule=rule)
    return fallback


def _in_quotation(answer: str, blocks: Sequence[Block], cut: bool) -> Candidate | None:
    """The code of an answer that marks all of it as a quotation; None where there are other blocks."""
    plain = unquoted(answer)
    if cut or blocks or plain == answer:
        return None
    found = _complete(_read(find_blocks(plain)[-_MAX_BLOCKS:]))
    return found.model_copy(update={"rule": f"{found.rule}+mended"}) if found else None


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


def _cut_off(answer: str, raw: str) -> NoCandidate:
    if unclosed_reasoning(raw):
        where = "inside its thinking"
    elif not answer.strip():
        where = "before it began"
    elif find_blocks(answer) or ENTRY_PATTERN.search(answer):
        where = "inside its code"
    else:
        where = "before its code"
    return NoCandidate(status="truncated", reason=f"the answer was cut at the token limit, {where}")


def _nothing(answer: str, raw: str, marked: bool) -> NoCandidate:
    if unclosed_reasoning(raw) and not answer.strip():
        found = "the answer ends inside its thinking, which was never closed"
    elif not answer.strip():
        found = "the answer is empty"
    elif marked:
        found = "the code blocks of the answer define no function and no class"
    else:
        found = "the answer holds no code"
    looked_for = "<triton>...</triton>, a fenced block, or plain code"
    names = " or ".join(ENTRY_POINTS)
    return NoCandidate(status="no_code", reason=f"{found}; looked for {looked_for} that defines {names}")
