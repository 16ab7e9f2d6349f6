"""Whether an example is the task itself in other clothes: what must not be shown to whoever is to solve it.

Several signs, each enough: the syntax tree, what `forward` computes, shared runs of tokens, nearness of the embeddings,
and ids known to mean one program. Pure; does not know where examples are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kb_ray.retrieve.choosing import Candidate
from kb_ray.retrieve.computed import contained, operations, telling, telling_entry
from kb_ray.retrieve.program import Core, core, overlap

_LEAST_RUNS = 150
"""Runs of tokens from which a share of a program says something: one operation more or less changes ten."""
_KERNELBENCH = re.compile(r"kernelbench/(\d+)/(\d+)(?:_|$)")
_SAKANA = re.compile(r"sakana/(\d+)/(\d+)_\d+$")
_NUMBER = re.compile(r"#\d+$")
"""What tells examples of one id apart."""


@dataclass(frozen=True)
class Asked:
    """A task as it is compared with examples."""

    core: Core
    operations: str
    """As `computed.operations` gives them."""

    @classmethod
    def of(cls, program: str, entry_point: str | None = None) -> Asked:
        """The task of a PyTorch program; `entry_point`: its class or function, where it is known."""
        return cls(core(program), operations(program, entry_point))


@dataclass(frozen=True)
class Bounds:
    """From what on an example is the task."""

    overlap: float
    """Share of runs of tokens that both have; also share of the task's runs, and of its operations', in the example."""
    similarity: float | None = None
    """Score of the search, where that is a cosine; None: scores say nothing."""


@dataclass(frozen=True)
class Leaks:
    """What of a pool is the task itself."""

    clean: list[Candidate]
    leaked: list[Candidate]


def without_leaks(pool: Sequence[Candidate], task: Asked, bounds: Bounds) -> Leaks:
    """Takes out what is the task itself."""
    clean, leaked = list[Candidate](), list[Candidate]()
    for candidate in pool:
        (leaked if is_task(candidate, task, bounds) else clean).append(candidate)
    return Leaks(clean, leaked)


def is_task(candidate: Candidate, task: Asked, bounds: Bounds) -> bool:
    """Whether an example is the task by any sign but its id."""
    if bounds.similarity is not None and candidate.score >= bounds.similarity:
        return True
    return same_program(Asked(candidate.core, candidate.operations), task, bounds.overlap)


def same_program(example: Asked, task: Asked, bound: float) -> bool:
    """Whether a program is the task by what stands in it; `bound`: see `Bounds.overlap`."""
    if example.core.digest == task.core.digest or computes(example.operations, task):
        return True
    if overlap(example.core.runs, task.core.runs) >= bound:
        return True
    wanted = task.core.runs
    share = len(example.core.runs & wanted) / len(wanted) if len(wanted) >= _LEAST_RUNS else 0.0
    return max(share, contained(task.operations, example.operations)) >= bound


def computes(lines: str, task: Asked) -> bool:
    """Whether a program with these operations, or a part of it, computes what the task does, on whatever numbers.

    Not where something in either cannot be followed: the difference might be there.
    """
    wanted = telling_entry(task.operations)
    return bool(wanted) and wanted in telling(lines)


def task_of(example_id: str) -> str:
    """What an example's id says of its task, in a form in which ids of one task are equal.

    `sakana/1/19_5`, a kernel of the archive, and `kernelbench/1/19_ReLU` are one; `#2` tells examples of one id apart.
    """
    return asked_id(_NUMBER.sub("", example_id))


def asked_id(task_id: str) -> str:
    """The same of a task's own id, whose end means nothing: `set#1` and `set#2` are two tasks."""
    known = _KERNELBENCH.match(task_id) or _SAKANA.match(task_id)
    return f"kernelbench/{known[1]}/{known[2]}" if known else task_id
