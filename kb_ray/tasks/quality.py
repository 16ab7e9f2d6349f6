"""What the task gate holds against a task, what each flag means, and which of them exclude it.

The vocabulary and the record of one checked task, nothing else: flags are found where references run
(bench/child/gate.py, references.py) and acted on by whoever drops or lists tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from kb_ray.records import Record

TOO_LARGE = "too_large"
SIZE_GUESSED = "size_guessed"
SIZE_UNKNOWN = "size_unknown"
REFERENCE_FAILED = "reference_failed"
NOT_DETERMINISTIC = "reference_not_deterministic"
NOWHERE_FINITE = "reference_nowhere_finite"
IGNORES_INPUT = "ignores_input"
IGNORES_WEIGHTS = "ignores_weights"

GUESSED_TIMES = 4
"""What weights and outputs are taken for where they cannot be told: so many times the inputs."""

_ANSWERS = {
    "zeros_pass": "zeros",
    "ones_pass": "ones",
    "constant_passes": "one constant, the mean or the first element of a first output,",
    "other_output_passes": "the output for other inputs",
}
_KERNELBENCH = "_kernelbench"
_KERNELBENCH_16BIT = "_kernelbench_16bit"

PASSES: dict[str, str] = {
    **{flag: f"{what} would pass here, on every set of inputs" for flag, what in _ANSWERS.items()},
    "input_passes": "an input, returned as it is, would pass here, on every set of inputs",
}
"""A trivial answer passes this project's own comparison on all families of inputs."""

PASSES_KERNELBENCH: dict[str, str] = {
    **{
        flag + _KERNELBENCH: f"{what} would pass KernelBench's check in float32: 1e-4, on inputs as drawn"
        for flag, what in _ANSWERS.items()
    },
    "zeros_pass" + _KERNELBENCH_16BIT: "zeros would pass KernelBench's check in 16 bits, 1e-2, on inputs as drawn",
}
"""A trivial answer passes what KernelBench asks for. This project's own comparison is not fooled by it."""

FLAGS: dict[str, str] = {
    **PASSES,
    **PASSES_KERNELBENCH,
    IGNORES_INPUT: "the output stays the same when one of the input tensors changes",
    IGNORES_WEIGHTS: "the output stays the same when the weights are drawn again",
    NOT_DETERMINISTIC: "the reference answers the same inputs differently",
    NOWHERE_FINITE: "an output of the reference holds no finite number, so that unwritten memory could pass",
    REFERENCE_FAILED: "the reference cannot be loaded, constructed or run",
    TOO_LARGE: "inputs, weights and outputs take more than was allowed: not run",
    SIZE_GUESSED: f"what its weights or outputs take cannot be told: taken as {GUESSED_TIMES} times its inputs",
    SIZE_UNKNOWN: "what its inputs take cannot be told without making them: not run",
}
"""Every flag of a task, with what it means."""

UNTRUSTED: frozenset[str] = frozenset({*PASSES, IGNORES_INPUT, IGNORES_WEIGHTS, NOT_DETERMINISTIC, NOWHERE_FINITE})
"""Flags under which a passing candidate may have computed nothing."""

EXCLUDING: frozenset[str] = UNTRUSTED | frozenset(PASSES_KERNELBENCH)
"""Flags that exclude a task where flagged ones are to be left out. A reference that fails is reported by its
episodes, and size is no fault."""


def excluding(flags: Collection[str]) -> tuple[str, ...]:
    """Those of `flags` that exclude a task, sorted."""
    return tuple(sorted(EXCLUDING.intersection(flags)))


def size_flags(sizes: Mapping[str, int], limit: int) -> frozenset[str]:
    """Why a task may not be run, empty where it may.

    `sizes`: bytes of `inputs`, `weights`, `outputs` as far as they can be told, and of what is `guessed`.
    """
    if "inputs" not in sizes:
        return frozenset({SIZE_UNKNOWN})
    if sum(sizes.values()) <= limit:
        return frozenset()
    told = sum(size for name, size in sizes.items() if name != "guessed")
    return frozenset({TOO_LARGE} if told > limit else {TOO_LARGE, SIZE_GUESSED})


class TaskReport(Record):
    """What checking one task showed."""

    task_id: str
    loads: bool
    """Whether its program could be read."""
    runs: bool | None = None
    """Whether its reference answered; None where it was not run."""
    style: Literal["module", "function"] | None = None
    level: int | None = None
    input_bytes: int | None = None
    """Size of one set of inputs, estimated where the reference was not run; None where that failed too."""
    seconds: float | None = None
    """Wall seconds of the check, waiting for a place included."""
    flags: tuple[str, ...] = ()
    """Of `FLAGS`, sorted."""
    error: str | None = None
    """One line: why it does not load or run."""

    @property
    def deterministic(self) -> bool | None:
        """Whether the reference answers the same inputs alike; None where it was not run."""
        return NOT_DETERMINISTIC not in self.flags if self.runs else None

    @property
    def excluded(self) -> bool:
        """Whether a run that leaves out flagged tasks would leave this one out."""
        return bool(excluding(self.flags))
