"""Completes a block with the other blocks of the same answer that define the names it lacks.

Joins whole blocks, in the order in which they stood, and only those that resolve a name. Knows nothing of
how blocks were found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kb_ray.extraction.syntax import Outline, outline

_FUTURE = re.compile(r"^from __future__ import [^(\n]+\n", re.MULTILINE)


def join(pieces: Sequence[tuple[str, Outline]], main: int) -> str:
    """The code of piece `main` with the pieces that resolve what it lacks; unchanged where none does.

    Of several pieces that could help, the one resolving most names is taken, then the nearest before `main`,
    then the nearest after it. A later piece with an entry point of its own is never taken: it would replace
    the one of `main`.
    """
    chosen = {main}
    lacks = pieces[main][1].lacks
    while lacks:
        resolved = {
            i: len(shape.defines & lacks)
            for i, (_, shape) in enumerate(pieces)
            if i not in chosen and not (shape.entry and i > main)
        }
        helpful = [i for i, count in resolved.items() if count]
        if not helpful:
            break
        chosen.add(max(helpful, key=lambda i: (resolved[i], i < main, -abs(i - main))))
        shape = outline(_text(pieces, chosen))
        lacks = shape.lacks if shape else frozenset()
    return _text(pieces, chosen)


def _text(pieces: Sequence[tuple[str, Outline]], chosen: set[int]) -> str:
    """The chosen pieces one after the other; `from __future__` lines, which must come first, in front."""
    whole = "\n\n".join(pieces[i][0].strip("\n") for i in sorted(chosen)) + "\n"
    if len(chosen) == 1 or not (lines := _FUTURE.findall(whole)):
        return whole
    return "".join(dict.fromkeys(lines)) + _FUTURE.sub("", whole)
