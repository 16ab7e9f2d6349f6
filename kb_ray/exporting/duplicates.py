"""Whether an answer is nearly one that was seen before: MinHash over runs of tokens, banded so that it stays quick.

Two answers are duplicates where they are one program under other names, or where the estimated share of equal runs of
five tokens reaches the threshold; answers to different tasks only where the tasks' references are as alike. Keeps
a few kilobytes for each answer that is new. Reads tokens only; runs nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
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
        self._bands: dict[bytes, dict[int, list[int]]] = {}
        """Band -> group of the task's reference -> numbers of answers: one kernel may answer every task there is."""
        self._answers = _Signatures()
        self._task_of: list[int] = []
        self._tasks: dict[str, int] = {}
        self._references = _Signatures()
        self._groups = _Groups(threshold)

    def add(self, task_id: str, reference: str, code: str) -> bool:
        """True, and remembered, where nothing like it was added before."""
        twin = (task_id, likeness(code))
        if twin in self._alike:
            return False
        marks = signature(code)
        keys = list(_bands(marks, self._rows))
        if task_id not in self._tasks:
            self._tasks[task_id] = self._references.append(signature(reference))
        task = self._tasks[task_id]
        if self._any_same(task, marks, self._near(task, keys)):
            return False
        self._alike.add(twin)
        group = self._groups.own(self._references[task])
        number = self._answers.append(marks)
        self._task_of.append(task)
        for key in keys:
            self._bands.setdefault(key, {}).setdefault(group, []).append(number)
        return True

    def _near(self, task: int, keys: Sequence[bytes]) -> list[int]:
        """Answers with a band in common, to tasks whose references may be alike."""
        found = [self._bands[key] for key in keys if key in self._bands]
        groups = self._groups.near(self._references[task]) if found else set()
        near: set[int] = set()
        for there in found:
            few, many = sorted((groups, there), key=len)
            near.update(*(there[group] for group in few if group in many))
        return list(near)

    def _any_same(self, task: int, marks: Signature, near: Sequence[int]) -> bool:
        tasks = np.array([self._task_of[number] for number in near], dtype=np.int64)
        alike = (tasks == task) | (self._references.shares(self._references[task], tasks) >= self._threshold)
        numbers = np.array(near, dtype=np.int64)[alike]
        return bool((self._answers.shares(marks, numbers) >= self._threshold).any())


class _Signatures:
    """Signatures by number, from 0, so that one is compared with many at once."""

    def __init__(self) -> None:
        self._all: Any = np.empty((64, _HASHES), dtype=np.uint32)
        self._count = 0

    def __getitem__(self, number: int) -> Signature:
        return self._all[number]

    def append(self, marks: Signature) -> int:
        """Its number."""
        if self._count == len(self._all):
            self._all = np.concatenate([self._all, np.empty_like(self._all)])
        self._all[self._count] = marks
        self._count += 1
        return self._count - 1

    def shares(self, marks: Signature, numbers: Any) -> Any:
        """`similarity` of `marks` with each of `numbers`, an array of whole numbers."""
        return (self._all[numbers] == marks).mean(axis=1)


class _Groups:
    """References grouped around the first of each kind, so that answers to unlike tasks are never looked at."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        # Shorter than those of answers: what is missed here is not looked for again.
        self._rows = 8 if threshold >= 0.9 else 4
        self._leaders = _Signatures()
        self._bands: dict[bytes, list[int]] = {}
        self._own: dict[bytes, int] = {}

    def own(self, marks: Signature) -> int:
        """The group of a reference: that of the first leader which is as alike as the threshold, or a new one."""
        name = marks.tobytes()
        if name not in self._own:
            numbers, shares = self._compared(marks)
            alike = numbers[shares >= self._threshold]
            self._own[name] = int(alike.min()) if len(alike) else self._lead(marks)
        return self._own[name]

    def near(self, marks: Signature) -> set[int]:
        """The groups in which a reference as alike as the threshold can be."""
        numbers, shares = self._compared(marks)
        # Shares of unequal places add up at most: the leader of what is alike is no further than twice as unlike.
        return {self.own(marks), *numbers[shares >= 2 * self._threshold - 1].tolist()}

    def _compared(self, marks: Signature) -> tuple[Any, Any]:
        """(numbers of leaders with a band in common, how alike each is)."""
        found = {number for key in _bands(marks, self._rows) for number in self._bands.get(key, ())}
        numbers = np.fromiter(found, np.int64, len(found))
        return numbers, self._leaders.shares(marks, numbers)

    def _lead(self, marks: Signature) -> int:
        number = self._leaders.append(marks)
        for key in _bands(marks, self._rows):
            self._bands.setdefault(key, []).append(number)
        return number


def _bands(marks: Signature, rows: int) -> Iterator[bytes]:
    for start in range(0, _HASHES, rows):
        yield start.to_bytes(1, "big") + zlib.crc32(marks[start : start + rows].tobytes()).to_bytes(4, "big")
