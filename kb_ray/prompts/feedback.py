"""A verdict, told to the model that wrote the kernel: what failed, where, and what to look at.

Wording stands in `guidance/*.md` (one for each kind of failure) and `hints.toml`; here is the layout, the lines of
an error are made by details.py and advice is chosen by hints.py.
Decides nothing: whether there is another turn is `refine`'s business. Never longer than `MAX_CHARS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

from kb_ray.categories import CATEGORY_BY_STATUS, TOO_SLOW, category_of
from kb_ray.prompts.details import counted, details, listed
from kb_ray.prompts.hints import doubts, hints
from kb_ray.prompts.opening import fenced
from kb_ray.records import Status, Verdict

__all__ = ["CATEGORY_BY_STATUS", "MAX_CHARS", "category_of", "feedback"]

MAX_CHARS: Final = 4000
"""Characters of a whole feedback message at most; only the error details are ever shortened for it."""

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


def feedback(verdict: Verdict, target_speedup: float, code: str | None = None) -> str:
    """The message that tells `verdict` to the model; at most MAX_CHARS characters of Markdown.

    `code` is the candidate's file, from which the line in error is shown and accesses without a mask are named.

    Raises ValueError for infra_error: a failure of ours is never told as the model's.
    """
    if verdict.status is Status.INFRA_ERROR:
        raise ValueError("an infra_error is not told to the model")
    category = category_of(verdict, target_speedup)
    head = "\n".join(["## Evaluation Feedback", *_bullets(verdict, category, target_speedup)])
    instructions = [
        _guidance(_guidance_name(verdict, category)),
        *hints(verdict, code),
        "",
        _guidance("closing"),
    ]
    tail = "\n".join(["## Instructions", *instructions])
    said = details(verdict, code)
    if not said:
        return f"{head}\n\n{tail}\n"
    title = "### Error Details\n"
    around = len(f"{head}\n\n{title}\n\n{tail}\n") + len(fenced(said)) - len(said)
    return f"{head}\n\n{title}{fenced(_shortened(said, MAX_CHARS - around))}\n\n{tail}\n"


def _bullets(verdict: Verdict, category: str, target_speedup: float) -> Iterator[str]:
    yield f"- **Status**: {category} - {_summary(verdict, category)}"
    yield f"- **Compiled**: {'Yes' if verdict.compiled else 'No'}"
    yield f"- **Tests Passed**: {verdict.tests_passed}/{verdict.tests_total}"
    if verdict.correct:
        yield from _speed(verdict, target_speedup)
        yield from _beyond_the_task(verdict)


def _summary(verdict: Verdict, category: str) -> str:
    if category == TOO_SLOW:
        return "Correct, but slower than the target"
    if not verdict.correct:
        return _SUMMARY[verdict.status]
    if not verdict.timed:
        return "Correct; speed cannot be measured here"
    return "Correct and fast enough" if verdict.trusted else "Correct, but the measured speed is not confirmed"


def _speed(verdict: Verdict, target_speedup: float) -> Iterator[str]:
    """Times of both sides, where the candidate's went, and what is doubted about them."""
    if verdict.speedup is not None:
        yield f"- **Speed**: {_times(verdict)}; the target is {target_speedup:.2f}"
    if verdict.compiled_time is not None and verdict.speedup_compiled is not None:
        compiled = verdict.compiled_time.median_ms
        yield f"- **torch.compile**: reference {compiled:.4g} ms, speedup over it {verdict.speedup_compiled:.3g}"
    yield from _parts(verdict)
    if verdict.timed and not verdict.trusted and (why := doubts(verdict)):
        yield f"- **Not confirmed**: {'; '.join(why)}"


def _times(verdict: Verdict) -> str:
    speedup = f"speedup {verdict.speedup:.3g}"
    if verdict.speedup_low is not None and verdict.speedup_high is not None:
        speedup += f" (95 % interval {verdict.speedup_low:.3g} to {verdict.speedup_high:.3g})"
    if not verdict.kernel_time or not verdict.reference_time:
        return speedup
    kernel, reference = verdict.kernel_time.median_ms, verdict.reference_time.median_ms
    return f"kernel {kernel:.4g} ms, reference {reference:.4g} ms (medians), {speedup}"


def _parts(verdict: Verdict) -> Iterator[str]:
    """Which part of a call's time the file's own kernels take, and which the rest."""
    evidence = verdict.evidence
    kernels = f" ({listed(evidence.kernels)})" if evidence.kernels else ""
    operators = f" ({counted(evidence.torch_ops)} over all checked calls)" if evidence.torch_ops else ""
    share = evidence.kernel_time_share
    if share is not None and verdict.kernel_time is not None:
        own, total = share * verdict.kernel_time.median_ms, verdict.kernel_time.median_ms
        yield (
            f"- **Time per part**: {share:.0%} in your kernels, about {own:.4g} ms{kernels}; "
            f"{1 - share:.0%} outside of them, about {total - own:.4g} ms{operators}"
        )
    elif evidence.torch_ops:
        yield f"- **PyTorch operators that computed**: {counted(evidence.torch_ops)} over all checked calls"


def _beyond_the_task(verdict: Verdict) -> Iterator[str]:
    """What came of shapes and dtypes that the task does not promise; they do not count."""
    tried = verdict.evidence.generalises
    if any(status != Status.OK for status in tried.values()):
        told = ", ".join(f"other {what.removesuffix('s')}s: {status}" for what, status in sorted(tried.items()))
        yield f"- **Beyond the task** (does not count): {told}"


def _guidance_name(verdict: Verdict, category: str) -> str:
    if category == TOO_SLOW:
        return "too_slow"
    if verdict.correct:
        return "success" if verdict.trusted or not verdict.timed else "unconfirmed"
    return verdict.status.value


@cache
def _guidance(name: str) -> str:
    return (files("kb_ray.prompts") / "guidance" / f"{name}.md").read_text("utf-8").strip()


def _shortened(text: str, room: int) -> str:
    """At most `room` characters: the beginning and the end, where compilers and tracebacks say most."""
    if len(text) <= room:
        return text
    mark = "\n[... shortened ...]\n"
    tail = (room - len(mark)) // 3
    return text[: room - len(mark) - tail] + mark + text[len(text) - tail :]
