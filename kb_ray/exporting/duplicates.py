"""Whether an answer is nearly one that was seen before: MinHash over runs of tokens, banded so that it stays quick.

Two answers are duplicates where they are one program under other names, or where the estimated share of equal runs of
five tokens reaches the threshold; answers to different tasks only where the tasks' references are as alike. Keeps
half a kilobyte for each answer that is new. Reads tokens only; runs nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from kb_ray.likeness import likeness

Signature = Any
"""numpy array of 128 unsigned 32-bit numbers."""

_RUN = 5
_HASHES = 128
_PRIME = np.uint64((1 << 31) - 1)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_COMMENT = re.compile(r"#[^\n]*")
# Fixed, so that the same store gives the same export.
_DRAW = np.random.default_rng(20240229)
_FACTORS = _DRAW.integers(1, int(_PRIME), size=(_HASHES, 1), dtype=np.uint64)
_OFFSETS = _DRAW.integers(0, int(_PRIME), size=(_HASHES, 1), dtype=np.uint64)


def signature(code: str) -> Signature:
    """[128] minima of hashed runs of five tokens; comments and layout do not count."""
    tokens = _TOKEN.findall(_COMMENT.sub("", code))
    runs = {" ".join(tokens[i : i + _RUN]) for i in range(max(1, len(tokens) - _RUN + 1))}
    hashed = np.fromiter((zlib.crc32(run.encode("utf-8", "surrogatepass")) for run in runs), np.uint64, len(runs))
    # Factors and hashes stay below 2**31, so that products fit 64 bits.
    return ((_FACTORS * (hashed % _PRIME) + _OFFSETS) % _PRIME).min(axis=1).astype(np.uint32)


def similarity(one: Signature, other: Signature) -> float:
    """Estimated share, 0 to 1, of runs of five tokens that two programs have in common."""
    return float(np.mean(one == other))


class Duplicates:
    """Answers let through so far. `threshold` is the similarity, above 0 and at most 1, from which two are one."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        # Longer bands find only what is very alike, shorter ones find more and compare more.
        self._rows = 16 if threshold >= 0.9 else 8 if threshold >= 0.7 else 4
        self._alike: set[tuple[str, str]] = set()
        self._bands: dict[bytes, list[int]] = {}
        self._kept: list[tuple[str, Signature]] = []
        self._references: dict[str, Signature] = {}

    def add(self, task_id: str, reference: str, code: str) -> bool:
        """True, and remembered, where nothing like it was added before."""
        twin = (task_id, likeness(code))
        if twin in self._alike:
            return False
        marks = signature(code)
        keys = list(self._keys(marks))
        if task_id not in self._references:
            self._references[task_id] = signature(reference)
        near = {index for key in keys for index in self._bands.get(key, ())}
        if any(self._same(task_id, marks, *self._kept[index]) for index in near):
            return False
        self._alike.add(twin)
        for key in keys:
            self._bands.setdefault(key, []).append(len(self._kept))
        self._kept.append((task_id, marks))
        return True

    def _same(self, task_id: str, marks: Signature, other_task: str, other: Signature) -> bool:
        if similarity(marks, other) < self._threshold:
            return False
        references = self._references
        return task_id == other_task or similarity(references[task_id], references[other_task]) >= self._threshold

    def _keys(self, marks: Signature) -> Iterator[bytes]:
        for start in range(0, _HASHES, self._rows):
            yield start.to_bytes(1, "big") + zlib.crc32(marks[start : start + self._rows].tobytes()).to_bytes(4, "big")
