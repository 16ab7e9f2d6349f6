"""A verdict, told to the model that wrote the kernel: what failed, where, and what to look at.

Wording stands in `guidance/*.md` (one for each kind of failure) and `hints.toml`; here is only the layout.
Decides nothing: whether there is another turn is `refine`'s business. Never longer than `MAX_CHARS`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

from kb_ray.categories import CATEGORY_BY_STATUS, TOO_SLOW, category_of
from kb_ray.prompts.opening import fenced
from kb_ray.records import ErrorDetail, Record, Status, Verdict

__all__ = ["CATEGORY_BY_STATUS", "MAX_CHARS", "category_of", "feedback"]

MAX_CHARS: Final = 4000
"""Characters of a whole feedback message at most; only the error details are ever shortened for it."""

_MAX_HINTS = 2
_SUMMARY: Final = {
    Status.NO_CODE: "No code was found in the answer",
    Status.TRUNCATED: "The answer was cut off at the token limit",
    Status.SYNTAX_ERROR: "The file is not valid Python",
    Status.FORBIDDEN: "The file uses something that is not allowed",
    Status.NO_KERNEL: "No Triton kernel does the work",
    Status.IMPORT_ERROR: "The file cannot be imported",
    Status.COMPILE_ERROR: "A kernel does not compile",
    Status.RUNTIME_ERROR: "The code fails while running",
    Status.ILLEGAL_ACCESS: "A kernel reaches outside its tensors",
    Status.OOM: "Out of memory",
    Status.TIMEOUT: "The code does not finish in time",
    Status.CRASH: "The process died",
    Status.WRONG_STRUCTURE: "The output has another structure than the reference's",
    Status.WRONG_SHAPE: "The output has another shape than the reference's",
    Status.WRONG_DTYPE: "The output has another dtype than the reference's",
    Status.NONFINITE: "The output has NaN or infinity in other places than the reference's",
    Status.MISMATCH: "The output differs from the reference's",
    Status.MUTATED_INPUT: "An input was changed",
    Status.HACK: "The result does not come from kernels of this file",
}
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class Hint(Record):
    """Advice for one recognisable error; see hints.toml."""

    error: str | None = None
    pattern: str | None = None
    text: str


def feedback(verdict: Verdict, target_speedup: float) -> str:
    """The message that tells `verdict` to the model; at most MAX_CHARS characters of Markdown.

    Raises ValueError for infra_error: a failure of ours is never told as the model's.
    """
    if verdict.status is Status.INFRA_ERROR:
        raise ValueError("an infra_error is not told to the model")
    category = category_of(verdict, target_speedup)
    head = "\n".join(["## Evaluation Feedback", *_bullets(verdict, category, target_speedup)])
    instructions = [
        _guidance(_guidance_name(verdict, category)),
        *_hints(verdict.error),
        "",
        _guidance("closing"),
    ]
    tail = "\n".join(["## Instructions", *instructions])
    details = _clean("\n".join(_details(verdict)))
    if not details:
        return f"{head}\n\n{tail}\n"
    title = "### Error Details\n"
    around = len(f"{head}\n\n{title}\n\n{tail}\n") + len(fenced(details)) - len(details)
    return f"{head}\n\n{title}{fenced(_shortened(details, MAX_CHARS - around))}\n\n{tail}\n"


def _bullets(verdict: Verdict, category: str, target_speedup: float) -> Iterator[str]:
    yield f"- **Status**: {category} - {_summary(verdict, category)}"
    yield f"- **Compiled**: {'Yes' if verdict.compiled else 'No'}"
    yield f"- **Tests Passed**: {verdict.tests_passed}/{verdict.tests_total}"
    if verdict.correct and verdict.speedup is not None:
        yield f"- **Speed**: {_speed(verdict)}; the target is {target_speedup:.2f}"


def _summary(verdict: Verdict, category: str) -> str:
    if category == TOO_SLOW:
        return "Correct, but slower than the target"
    if not verdict.correct:
        return _SUMMARY[verdict.status]
    if not verdict.timed:
        return "Correct; speed cannot be measured here"
    return "Correct and fast enough" if verdict.trusted else "Correct, but the measured speed is not confirmed"


def _speed(verdict: Verdict) -> str:
    speedup = f"speedup {verdict.speedup:.3g}"
    if verdict.speedup_low is not None and verdict.speedup_high is not None:
        speedup += f" (95 % interval {verdict.speedup_low:.3g} to {verdict.speedup_high:.3g})"
    if not verdict.kernel_time or not verdict.reference_time:
        return speedup
    kernel, reference = verdict.kernel_time.median_ms, verdict.reference_time.median_ms
    return f"kernel {kernel:.4g} ms, reference {reference:.4g} ms (medians), {speedup}"


def _details(verdict: Verdict) -> Iterator[str]:
    if error := verdict.error:
        where = f"line {error.line}: " if error.line is not None else ""
        yield f"{where}{error.message}"
        yield from _difference(error)
        if error.detail.strip() and error.detail.strip() != error.message.strip():
            yield error.detail.rstrip()
    if verdict.status in (Status.HACK, Status.NO_KERNEL):
        yield from _seen(verdict)


def _difference(error: ErrorDetail) -> Iterator[str]:
    """Where and by how much an output differs, as far as it is known."""
    if error.wrong_elements is not None and error.total_elements is not None:
        which = f" of {error.output}" if error.output else ""
        pattern = f" ({error.pattern})" if error.pattern else ""
        yield f"Wrong elements{which}: {error.wrong_elements} of {error.total_elements}{pattern}"
    elif error.output:
        yield f"Output: {error.output}"
    if error.expected is not None or error.got is not None:
        at = f"At {list(error.position)}: " if error.position is not None else ""
        yield f"{at}expected {error.expected}, got {error.got}"
    sizes = (("absolute", error.max_abs_error), ("relative", error.max_rel_error))
    known = ", ".join(f"{kind} {size:.4g}" for kind, size in sizes if size is not None)
    if known:
        yield f"Largest error: {known}"


def _seen(verdict: Verdict) -> Iterator[str]:
    """What was seen while the code ran, for a verdict that says it did not do the work itself."""
    evidence = verdict.evidence
    if evidence.kernel_launches is not None:
        names = f" ({', '.join(evidence.kernels)})" if evidence.kernels else ""
        yield f"Launches of kernels of this file: {evidence.kernel_launches}{names}"
    if evidence.torch_ops:
        calls = ", ".join(f"{name} x{count}" for name, count in sorted(evidence.torch_ops.items()))
        yield f"PyTorch operators that computed: {calls}"
    if evidence.flags:
        yield f"Noted: {', '.join(evidence.flags)}"


def _guidance_name(verdict: Verdict, category: str) -> str:
    if category == TOO_SLOW:
        return "too_slow"
    if verdict.correct:
        return "success" if verdict.trusted or not verdict.timed else "unconfirmed"
    return verdict.status.value


@cache
def _guidance(name: str) -> str:
    return (files("kb_ray.prompts") / "guidance" / f"{name}.md").read_text("utf-8").strip()


@cache
def _all_hints() -> tuple[Hint, ...]:
    text = (files("kb_ray.prompts") / "hints.toml").read_text("utf-8")
    return tuple(Hint(**fields) for fields in tomllib.loads(text)["hint"])


def _hints(error: ErrorDetail | None) -> list[str]:
    if error is None:
        return []
    said, pattern = f"{error.message}\n{error.detail}", error.pattern or ""
    found = [
        f"- {hint.text}"
        for hint in _all_hints()
        if (hint.error and re.search(hint.error, said, re.IGNORECASE))
        or (hint.pattern and re.search(hint.pattern, pattern, re.IGNORECASE))
    ]
    return found[:_MAX_HINTS]


def _clean(text: str) -> str:
    """Without terminal colours, control characters and runs of backticks that would need a long fence."""
    return re.sub(r"`{6,}", "`````", _CONTROL.sub("", text.replace("\r\n", "\n"))).strip("\n")


def _shortened(text: str, room: int) -> str:
    """At most `room` characters: the beginning and the end, where compilers and tracebacks say most."""
    if len(text) <= room:
        return text
    mark = "\n[... shortened ...]\n"
    tail = (room - len(mark)) // 3
    return text[: room - len(mark) - tail] + mark + text[len(text) - tail :]
