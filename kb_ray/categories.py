"""The heading under which each verdict is told to the model.

One table, read by the verifier (it fills `ErrorDetail.category`) and by the feedback. Knows no wording beyond
the heading and decides nothing: what ends an episode is `refine`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kb_ray.records import Status, Verdict

SUCCESS: Final = "SUCCESS"
TOO_SLOW: Final = "TOO SLOW"
REFERENCE_ERROR: Final = "REFERENCE ERROR"
"""Of an `infra_error` whose reference cannot be run; like any other, never told to a model."""

CATEGORY_BY_STATUS: Final[Mapping[Status, str]] = MappingProxyType(
    {
        Status.OK: SUCCESS,
        Status.NO_CODE: "FORMAT ERROR",
        Status.TRUNCATED: "FORMAT ERROR",
        Status.SYNTAX_ERROR: "SYNTAX ERROR",
        Status.FORBIDDEN: "NOT ALLOWED",
        Status.NO_KERNEL: "NO KERNEL",
        Status.IMPORT_ERROR: "IMPORT ERROR",
        Status.COMPILE_ERROR: "COMPILATION ERROR",
        Status.RUNTIME_ERROR: "RUNTIME ERROR",
        Status.ILLEGAL_ACCESS: "MEMORY ERROR",
        Status.OOM: "MEMORY ERROR",
        Status.TIMEOUT: "TIMEOUT",
        Status.CRASH: "RUNTIME ERROR",
        Status.WRONG_STRUCTURE: "CORRECTNESS ERROR",
        Status.WRONG_SHAPE: "CORRECTNESS ERROR",
        Status.WRONG_DTYPE: "CORRECTNESS ERROR",
        Status.NONFINITE: "CORRECTNESS ERROR",
        Status.MISMATCH: "CORRECTNESS ERROR",
        Status.MUTATED_INPUT: "CORRECTNESS ERROR",
        Status.HACK: "NOT A REAL KERNEL",
        Status.INFRA_ERROR: "INFRASTRUCTURE ERROR",
    }
)
"""Every status has a category. `infra_error` has one for logs only: it is never told to a model."""


def category_of(verdict: Verdict, target_speedup: float) -> str:
    """The category of a verdict; a correct one measured below `target_speedup` is `TOO SLOW`."""
    if verdict.correct and verdict.speedup is not None and verdict.speedup < target_speedup:
        return TOO_SLOW
    return CATEGORY_BY_STATUS[verdict.status]
