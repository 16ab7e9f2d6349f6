"""What the judge knows of a task: its cases, and how tensors of its own are held against each other.

Records and comparisons only; `references` makes the cases.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.inputs import Variant
from kb_ray.bench.child.plans import Plan
from kb_ray.bench.child.strides import distinct
from kb_ray.bench.child.tolerance import Tolerance
from kb_ray.bench.child.tree import unflatten
from kb_ray.bench.protocol import BenchSettings
from kb_ray.records import Task

LARGE_BYTES = 1 << 30
"""Inputs and outputs of one case beyond which a task's cases are made again for every evaluation."""


@dataclass
class Case:
    """One input set with what the reference makes of it. Tensors are the judge's own."""

    variant: Variant
    inputs_tree: wire.Tree
    inputs: list[torch.Tensor]
    outputs_tree: wire.Tree
    outputs: list[torch.Tensor]
    inputs_after: list[torch.Tensor] | None
    """The inputs as the reference left them, where it changes them."""
    weights: list[torch.Tensor]
    """What candidates are constructed with: how much is summed per output shows in its shapes."""
    tolerances: list[Tolerance] = field(default_factory=list)
    """What is allowed around each output."""

    given_tree: wire.Tree = None
    """How a candidate is constructed with `weights`, where these are not the task's own."""
    plans: list[Plan] = field(default_factory=list)
    """Where calls on it are timed: how its inputs may be changed between them."""
    serial: int = field(default_factory=itertools.count().__next__)
    """Tells cases apart that are with a process at the same time."""

    def expected(self) -> Any:
        return unflatten(self.outputs_tree, self.outputs)

    def bytes(self) -> int:
        return size_of([*self.inputs, *self.outputs, *(self.inputs_after or [])])


@dataclass
class Loaded:
    """A task known to the judge: how candidates are constructed, and the cases made so far."""

    key: str
    task: Task
    init_seed: int
    given_tree: wire.Tree = None
    given: list[torch.Tensor] = field(default_factory=list)
    cases: dict[int, Case] = field(default_factory=dict)
    hidden: dict[str, Case | None] = field(default_factory=dict)
    """Cases of what the task does not promise, by name; None where its reference does not accept that."""
    flags: set[str] = field(default_factory=set)
    case_bytes: int | None = None
    """Bytes of inputs and outputs of one case, once the first was made."""
    input_bytes: int | None = None
    flops: int = 0
    """Floating-point operations of the reference's products and convolutions in one call."""
    planned: tuple[tuple[Any, ...], list[Plan]] | None = None
    """Dtypes and shapes of inputs that were timed, and how such may be changed between calls."""
    in_process: int = -1
    """Serial number of the process that has it loaded."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def large(self) -> bool:
        """Whether cases are too large to be kept from one evaluation to the next."""
        return (self.case_bytes or 0) > LARGE_BYTES

    def kept(self) -> list[Case]:
        return [*self.cases.values(), *(case for case in self.hidden.values() if case is not None)]


def task_key(task: Task, settings: BenchSettings) -> str:
    """Identity of a task by content: whatever changes what its reference does."""
    content = task.model_dump_json(
        include={"reference_code", "style", "entry_point", "init_convention", "input_shapes"}
    )
    return hashlib.sha256(f"{settings.n_correctness} {settings.tf32} {content}".encode()).hexdigest()[:24]


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def finite(case: Case) -> bool:
    """Whether every float output of the reference is finite."""
    return all(bool(torch.isfinite(t).all()) for t in case.outputs if t.is_floating_point())


def has_finite(output: torch.Tensor) -> bool:
    """Whether an output has an element that can be told from fresh memory: not so if all are NaN or infinite."""
    return not output.is_floating_point() or not output.numel() or bool(torch.isfinite(output).any())


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold the same bits (NaN equals itself here)."""
    first, second = (_words(distinct(t, like=a)) for t in (a, b))
    return bool(torch.equal(first, second))


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor as the widest integers that it divides into: the fewest elements to compare."""
    flat = tensor.contiguous().reshape(-1)
    wide = flat.numel() * flat.element_size() % 8 == 0 and flat.data_ptr() % 8 == 0
    return flat.view(torch.uint8).view(torch.int64) if wide else flat.view(torch.uint8)


def mutates(cases: Sequence[Case]) -> bool:
    """Whether the task's reference changes its inputs, so that repeated calls need them put back."""
    return any(case.inputs_after is not None for case in cases)
