"""From how a candidate's process failed to a status, a stage and words for the model. Pure.

The child's own account (exception type, message, line) is used here: a candidate may lie about how it
failed, but every answer below is a failure. On a CPU a call that only a GPU can serve is nobody's
failure and comes out as infra_error.
"""

from __future__ import annotations

import re
import signal
from typing import Any

from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import ErrorDetail, Stage, Status

_COMPILE_TYPES = frozenset(
    {"CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "OutOfResources",
     "InterpreterError", "PTXASError"}
)  # fmt: skip
_ILLEGAL = ("illegal memory access", "misaligned address", "illegal address", "invalid address space")
_OOM = ("out of memory", "cannot allocate memory", "can't allocate memory", "failed to allocate")
_NO_ROOM = ("out of memory", "busy or unavailable")
"""What CUDA says on a card whose memory somebody has taken: to who allocates, and to who makes a context."""
_NEEDS_GPU = (
    "0 active drivers", "not compiled with cuda", "found no nvidia driver", "no cuda gpus are available",
    "no cuda-capable device", "requires cuda", "cudagetdevicecount", "libcuda.so",
)  # fmt: skip
NEEDS_GPU_FLAG = "needs_gpu"
_DETAIL_LINES = 14

Blame = tuple[Status, Stage, ErrorDetail]


def lacks_memory(message: str) -> bool:
    """Whether an error of CUDA's may only say that others have taken the card's memory."""
    return any(words in message for words in _NO_ROOM)


class Failed(Exception):
    """The candidate failed: the verdict is known."""

    def __init__(self, status: Status, stage: Stage, error: ErrorDetail) -> None:
        super().__init__(status)
        self.status, self.stage, self.error = status, stage, error


def detail(status: Status, message: str, detail: str = "", **more: Any) -> ErrorDetail:
    """An error in words that can be written down, whoever chose them."""
    return ErrorDetail(category=CATEGORY_BY_STATUS[status], message=clean(message), detail=clean(detail), **more)


def clean(text: str) -> str:
    """`text` without halves of characters: no encoding has them, so a verdict that held one could not be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def blame_exception(info: dict[str, Any], phase: str, source: str, cuda: bool) -> Blame:
    """Status of an exception in `phase`: `load`, `build`, `first_call`, `call` or `timing`."""
    bases = info.get("bases")
    kinds = {str(info.get("type")), *(map(str, bases) if isinstance(bases, list) else ())}
    message = str(info.get("message") or "")
    status = _status(kinds, str(info.get("cause") or ""), message.lower(), phase, cuda)
    stage = _stage(status, phase)
    line = info.get("line")
    line = line if isinstance(line, int) and 1 <= line <= len(_lines(source)) else None
    name = str(info.get("cause") if "InterpreterError" in kinds and info.get("cause") else info.get("type"))
    said = [part.strip() for part in message.splitlines() if part.strip()] or [""]
    # Triton's compiler says where first and what last; everyone else begins with what.
    first = said[-1] if "CompilationError" in kinds else said[0]
    key_line = f"{name}: {first}".strip().rstrip(":")
    if status is Status.INFRA_ERROR:
        key_line = f"needs a GPU: {key_line}"
    return status, stage, detail(status, key_line[:500], detail=_detail(message, line, source), line=line)


def _status(kinds: set[str], cause: str, message: str, phase: str, cuda: bool) -> Status:
    if not cuda and any(words in message for words in _NEEDS_GPU):
        return Status.INFRA_ERROR
    if kinds & {"MemoryError", "OutOfMemoryError"} or cause == "MemoryError" or any(w in message for w in _OOM):
        return Status.OOM
    if any(words in message for words in _ILLEGAL):
        return Status.ILLEGAL_ACCESS
    if phase == "load":
        if "LoadError" in kinds:
            return Status.NO_KERNEL
        return Status.SYNTAX_ERROR if "SyntaxError" in kinds else Status.IMPORT_ERROR
    if "WireError" in kinds and phase in ("first_call", "call"):
        return Status.WRONG_STRUCTURE
    if "unsupported function referenced" in message:  # Triton, of a plain function called in a kernel
        return Status.COMPILE_ERROR
    if kinds & _COMPILE_TYPES and cause != "AssertionError":
        return Status.COMPILE_ERROR
    return Status.RUNTIME_ERROR


def _stage(status: Status, phase: str) -> Stage:
    if phase == "first_call" and status is Status.COMPILE_ERROR:
        return Stage.COMPILE
    return {
        "load": Stage.LOAD,
        "build": Stage.LOAD,
        "first_call": Stage.TINY,
        "call": Stage.FULL,
        "timing": Stage.TIMING,
    }[phase]


def _detail(message: str, line: int | None, source: str) -> str:
    """The message's lines, bounded, and the candidate's line it points at."""
    kept = [part.rstrip() for part in message.splitlines() if part.strip()][:_DETAIL_LINES]
    if line is not None:
        kept += [f"line {line}: {_lines(source)[line - 1].strip()}"]
    return "\n".join(kept)


def _lines(source: str) -> list[str]:
    """Lines as Python counts them: neither form feeds nor Unicode's separators end one."""
    lines = re.split(r"\r\n?|\n", source)
    return lines if lines[-1] else lines[:-1]


def blame_death(
    signal_number: int | None, exit_code: int | None, launching: bool, log: str, phase: str, cuda: bool
) -> Blame:
    """Status of a process that ended without an answer."""
    tail = "\n".join(log.splitlines()[-_DETAIL_LINES:])
    if signal_number in (signal.SIGSEGV, signal.SIGBUS) and launching and not cuda:
        message = "a kernel read or wrote outside of its tensors (unmasked or wrong offsets)"
        return (
            Status.ILLEGAL_ACCESS,
            _stage(Status.ILLEGAL_ACCESS, phase),
            detail(Status.ILLEGAL_ACCESS, message),
        )
    if signal_number is not None:
        # Real-time signals have no names.
        known = signal_number in set(signal.Signals)
        how = f"was killed by {signal.Signals(signal_number).name if known else f'signal {signal_number}'}"
    else:
        how = f"exited with code {exit_code}" if exit_code is not None else "closed its channel"
    last = tail.rpartition("\n")[2]
    if last.startswith("killed: "):  # said by the judge's own watchdog
        how = f"was {last}"
    where = {"load": "while the code was imported", "build": "while it was constructed"}.get(phase, "while it ran")
    status = Status.CRASH
    return status, _stage(status, phase), detail(status, f"the process {how} {where}", detail=tail)


def may_be_company(status: Status, stage: Stage) -> bool:
    """Whether it could be the fault of whoever was on the card too. Those stop while one is timed, and keep their
    memory."""
    return status is Status.OOM or (status is Status.TIMEOUT and stage is not Stage.TIMING)


def blame_timeout(phase: str, timeout_s: float) -> Blame:
    what = {"load": "import", "build": "construction", "first_call": "first call (compilation included)"}
    message = f"{what.get(phase, 'execution')} did not finish within {timeout_s:g} s"
    return Status.TIMEOUT, _stage(Status.TIMEOUT, phase), detail(Status.TIMEOUT, message)
