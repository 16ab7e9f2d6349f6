"""The words for what became of a candidate and how far it got, and what each means.

A vocabulary and one table; decides nothing about any candidate.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """What became of one candidate; exactly one applies."""

    OK = "ok"
    NO_CODE = "no_code"
    TRUNCATED = "truncated"
    SYNTAX_ERROR = "syntax_error"
    FORBIDDEN = "forbidden"
    NO_KERNEL = "no_kernel"
    IMPORT_ERROR = "import_error"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    ILLEGAL_ACCESS = "illegal_access"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASH = "crash"
    WRONG_STRUCTURE = "wrong_structure"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    NONFINITE = "nonfinite"
    MISMATCH = "mismatch"
    MUTATED_INPUT = "mutated_input"
    HACK = "hack"
    INFRA_ERROR = "infra_error"


class Stage(StrEnum):
    """The stage a verdict was reached in, in order."""

    EXTRACT = "extract"
    STATIC = "static"
    LOAD = "load"
    COMPILE = "compile"
    TINY = "tiny"
    FULL = "full"
    TIMING = "timing"


STAGE_ORDER: dict[Stage, int] = {stage: i for i, stage in enumerate(Stage)}

_INVALID = frozenset({Status.NO_CODE, Status.TRUNCATED, Status.SYNTAX_ERROR, Status.FORBIDDEN})
_NOT_COMPILED = frozenset({Status.IMPORT_ERROR, Status.COMPILE_ERROR})


def validity(status: Status, stage: Stage) -> tuple[bool, bool, bool]:
    """(valid, compiled, correct) of a status reached at a stage."""
    before_running = STAGE_ORDER[stage] < STAGE_ORDER[Stage.COMPILE]
    if status in _INVALID or status is Status.INFRA_ERROR or (status is Status.NO_KERNEL and before_running):
        return False, False, False
    return True, status not in _NOT_COMPILED, status is Status.OK
