"""Completes a block with the other blocks of the same answer that define the names it lacks.

Joins whole blocks, in the order in which they stood, and only those that resolve a name; of a block that is
needed for an import alone, that import. Knows nothing of how blocks were found.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kb_ray.extraction.hollow import without_definitions
from kb_ray.extraction.parsing import Parser
from kb_ray.extraction.syntax import Outline

_FUTURE = re.compile(r"^from __future__ import [^(\n]+\n", re.MULTILINE)

Pieces = Sequence[tuple[str, Outline]]


def join(pieces: Pieces, main: int) -> str:
    """The code of piece `main` with the pieces that resolve what it lacks; unchanged where none does.

    A name that several pieces define comes from the last one since the last version with an entry point of its
    own, before `main` and then after it, then from older ones: what is replaced is quoted in front of what replaces
    it. Functions that a piece brings along are replaced so too. A later piece with an entry point is never taken: it
    would replace the one of `main`. Imports may come from anywhere.
    """
    order = _by_rank(pieces, main)
    chosen = {main}
    pending = [main]
    while pending:
        shape = pieces[pending.pop()][1]
        for name in shape.lacks | (shape.uses & shape.functions):
            provider = next((i for i in order if _offers(pieces[i][1], name, shape)), None)
            if provider is not None and provider not in chosen:
                chosen.add(provider)
                pending.append(provider)
    ranked = [i for i in order if i in chosen]
    return _text(pieces, _arranged(pieces, ranked), order)


def without_hollow(pieces: Pieces, parser: Parser) -> list[tuple[str, Outline]]:
    """The pieces without definitions that have an empty body where another one of the same name has a real one.

    `def kernel(...): ...` in a later block, or below the kernel itself, says "as above" and would replace it.
    """
    real = Counter(name for _, shape in pieces for name in shape.functions - shape.hollow)
    found = []
    for code, shape in pieces:
        elsewhere = frozenset(name for name in shape.hollow if real[name])
        tree = parser.tree(code)
        kept = without_definitions(code, tree, elsewhere) if isinstance(tree, ast.Module) else code
        kept = kept if kept == code else kept.strip("\n") + "\n"
        rest = parser.outline(kept) if kept != code else None
        found.append((kept, rest) if rest else (code, shape))
    return found


def _by_rank(pieces: Pieces, main: int) -> list[int]:
    """The pieces that may help `main`, itself first, those that count before the others."""
    shapes = [shape for _, shape in pieces]
    version = max((i for i in range(main) if shapes[i].entry and not shapes[i].stub), default=-1)
    allowed = [i for i, shape in enumerate(shapes) if i != main and not (shape.entry and i > main)]
    return [main, *sorted(allowed, key=lambda i: (i <= version, i > main, -i))]


def _offers(shape: Outline, name: str, user: Outline) -> bool:
    """Whether a piece defines what `user` needs under `name`: for a function of its own, another function."""
    if name in user.functions:
        return name in shape.functions
    return name in shape.defines and name not in shape.imports


def _arranged(pieces: Pieces, ranked: Sequence[int]) -> list[int]:
    """The pieces as they stood, but in front of those that count where they would replace their functions."""
    replacing = {
        i
        for rank, i in enumerate(ranked)
        if any(j < i and pieces[i][1].functions & pieces[j][1].functions for j in ranked[:rank])
    }
    return sorted(ranked, key=lambda i: (i not in replacing, i))


def _text(pieces: Pieces, arranged: Sequence[int], order: Sequence[int]) -> str:
    """The pieces one after the other, in front of them the imports they lack, and `from __future__` lines first."""
    whole = "\n\n".join(pieces[i][0].strip("\n") for i in arranged) + "\n"
    imports = "".join(f"{line}\n" for line in sorted(set(_missing_imports(pieces, arranged, order))))
    if len(arranged) == 1 and not imports:
        return whole
    futures = "".join(dict.fromkeys(_FUTURE.findall(whole)))
    return futures + imports + (_FUTURE.sub("", whole) if futures else whole)


def _missing_imports(pieces: Pieces, arranged: Sequence[int], order: Sequence[int]) -> Iterator[str]:
    """Import statements for the names that a piece lacks at its place."""
    defined: set[str] = set()
    for i in arranged:
        shape = pieces[i][1]
        for name in shape.lacks - defined:
            lines = next((pieces[j][1].imports[name] for j in order if name in pieces[j][1].imports), "")
            yield from lines.split("\n") if lines else ()
        defined |= shape.defines
