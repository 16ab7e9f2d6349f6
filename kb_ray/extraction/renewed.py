"""Whether an answer that was cut had begun its code anew: what stands complete before is then a version given up.

Told from the cut piece alone: a usage or test block behind a complete answer does not matter, and what only repeats
that answer, as loops do, says nothing new. Where the piece is too short to tell, nothing is concluded.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import takewhile

from kb_ray.extraction.bare import from_first_code_line
from kb_ray.extraction.blocks import Block
from kb_ray.extraction.syntax import ENTRY_PATTERN

_KERNEL = re.compile(
    r"^[ \t]*@(?:[\w.]+\.)?jit\b[^\n]*\n(?:(?:[ \t]+\S[^\n]*|[@#)][^\n]*|[ \t]*)\n){0,16}?[ \t]*def[ \t]+(\w+)[ \t]*\(",
    re.MULTILINE,
)
"""A function under a decorator that compiles it, with its name; between them the decorator's rest and others."""
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+triton\b", re.MULTILINE)


def begun_anew(answer: str, blocks: Sequence[Block], found: str) -> bool:
    """Whether what was cut at the end of `answer`, in the last of its blocks or behind it, begins to replace `found`.

    The blocks since the last one with an entry point count with it: a new kernel may be whole and its wrapper cut.
    """
    last = blocks[-1]
    rest = answer[answer.rfind(last.code) + len(last.code) :] if last.closed else last.code
    cut = from_first_code_line(textwrap.dedent(rest))
    if not _begins(cut, found):
        return False
    before = reversed(blocks if last.closed else blocks[:-1])
    since = takewhile(lambda code: not ENTRY_PATTERN.search(code), (block.code for block in before))
    return any(code.strip() not in found and _begins(code, found) for code in (cut, *since))


def _begins(code: str, found: str) -> bool:
    """Whether code begins an entry point, a kernel of `found`, or a file with any kernel."""
    if ENTRY_PATTERN.search(code):
        return True
    file = _IMPORT.search(code) is not None
    return any(file or re.search(rf"^[ \t]*def {name}\b", found, re.MULTILINE) for name in _KERNEL.findall(code))
