"""Where an output was wrong, as far as a verdict tells: what the picture of a mismatch is drawn from.

A verdict keeps counts, the first wrong element and a regularity in words, not the output itself. Nothing here
guesses: where no regularity was seen, places are not drawn.
"""

from __future__ import annotations

import re
from typing import Literal

from kb_ray.records import ErrorDetail, Record

_TAIL = re.compile(r"only the tail from flat index (\d+)")
_EVERY = re.compile(r"every (\d+)-th element from flat index (\d+)")


class Mismatch(Record):
    """The wrong elements of one output, in row-major order."""

    wrong: int
    total: int
    where: Literal["all", "tail", "every", "unknown"]
    start: int = 0
    """Flat index of the first of them, for `tail` and `every`."""
    step: int = 1
    """Distance of two of them, for `every`."""


def mismatch_of(error: ErrorDetail | None) -> Mismatch | None:
    """What can be drawn; None where the elements were not compared or none was wrong."""
    if error is None or not error.wrong_elements or not error.total_elements:
        return None
    wrong, total, pattern = error.wrong_elements, error.total_elements, error.pattern or ""
    if wrong >= total:
        return Mismatch(wrong=wrong, total=total, where="all")
    if tail := _TAIL.search(pattern):
        return Mismatch(wrong=wrong, total=total, where="tail", start=int(tail[1]))
    if every := _EVERY.search(pattern):
        return Mismatch(wrong=wrong, total=total, where="every", start=int(every[2]), step=int(every[1]))
    return Mismatch(wrong=wrong, total=total, where="unknown")
