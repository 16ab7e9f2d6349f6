"""Under which licence the programs of each source stand, and the examples of each corpus that prompts may show.

Only what the sources say of themselves. Answers of a model are not judged here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

LICENCES: dict[str, str] = {"builtin": "apache-2.0", "kernelbench": "mit"}
"""Identifier by source, as the hub spells them."""

UNKNOWN = "unknown"
"""For sources whose programs have licences of their own, or which are the user's."""

_TOLD: dict[str, str] = {
    "kernelbook": "each program has the licence of the repository it comes from; the data set lists them by row (uuid)",
    "sakana": "CUDA kernels and programs of SakanaAI/AI-CUDA-Engineer-Archive; the card of that data set has its terms",
    "folder": "the user's own programs",
    "file": "the user's own programs",
}


def licence(source: str, known: Mapping[str, str]) -> str:
    """The identifier for a source; `known` is what the user says, and wins."""
    return known.get(source) or LICENCES.get(source, UNKNOWN)


def remark(source: str) -> str:
    """What there is to know where one identifier does not do; empty where it does."""
    return _TOLD.get(source, "")


def of_all(sources: Collection[str], known: Mapping[str, str]) -> str:
    """The one licence of a data set from these sources; `other` where there is not one."""
    found = {licence(source, known) for source in sources}
    return found.pop() if len(found) == 1 and UNKNOWN not in found else "other"
