"""What the judge knows of a task: its cases, and how tensors of its own are held against each other.

Records and comparisons only; `references` makes the cases.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.inputs import Variant
from kb_ray.bench.child.tree import unflatten
from kb_ray.records import Task


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
    oracle: list[torch.Tensor] | None = None
    """The outputs in float64, where the reference runs in float64."""

    def expected(self) -> Any:
        return unflatten(self.outputs_tree, self.outputs)

    def bytes(self) -> int:
        groups = (self.inputs, self.outputs, self.inputs_after or [], self.oracle or [])
        return sum(t.numel() * t.element_size() for group in groups for t in group)


@dataclass
class Loaded:
    """A task known to the judge: how candidates are constructed, and the cases made so far."""

    key: str
    task: Task
    init_seed: int
    given_tree: wire.Tree = None
    given: list[torch.Tensor] = field(default_factory=list)
    cases: dict[int, Case] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    in_process: int = -1
    """Serial number of the process that has it loaded."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def task_key(task: Task) -> str:
    """Identity of a task by content: whatever changes what its reference does."""
    content = task.model_dump_json(
        include={"reference_code", "style", "entry_point", "init_convention", "input_shapes"}
    )
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def finite(case: Case) -> bool:
    """Whether every float output of the reference is finite."""
    return all(bool(torch.isfinite(t).all()) for t in case.outputs if t.is_floating_point())


def has_finite(output: torch.Tensor) -> bool:
    """Whether an output has an element that can be told from fresh memory: not so if all are NaN or infinite."""
    return not output.is_floating_point() or not output.numel() or bool(torch.isfinite(output).any())


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold the same bits (NaN equals itself here)."""
    first, second = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(first, second))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two answers of one reference to one input may pass for the same."""
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    return bool(torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-2, equal_nan=True))


def mutates(cases: Sequence[Case]) -> bool:
    """Whether the task's reference changes its inputs, so that repeated calls need them put back."""
    return any(case.inputs_after is not None for case in cases)
