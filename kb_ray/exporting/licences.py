"""Under which licence the programs of each source stand, and the examples of each corpus that prompts may show.

Only what the sources say of themselves. Answers of a model are not judged here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

LICENCES: dict[str, str] = {"builtin": "apache-2.0", "kernelbench": "mit"}
"""Identifier by source, as the hub spells them."""

UNKNOWN = "unknown"
"""For programs of which neither their row nor their source says it."""

_TOLD: dict[str, str] = {
    "kernelbook": "each program has the licence of its repository: the column `license` has it, row by row",
    "sakana": "CUDA kernels and programs of SakanaAI/AI-CUDA-Engineer-Archive; the card of that data set has its terms",
    "folder": "the user's own programs",
    "file": "the user's own programs",
}


def licence(source: str, known: Mapping[str, str], own: str | None = None) -> str:
    """The identifier for a source, or for a program whose row names its `own`; `known`, what the user says, wins."""
    return known.get(source) or own or LICENCES.get(source, UNKNOWN)


def remark(source: str) -> str:
    """What there is to know where one identifier does not do; empty where it does."""
    return _TOLD.get(source, "")


def of_all(sources: Collection[str], known: Mapping[str, str]) -> str:
    """The one licence of a data set from these sources; `other` where there is not one."""
    found = {licence(source, known) for source in sources}
    return found.pop() if len(found) == 1 and UNKNOWN not in found else "other"
