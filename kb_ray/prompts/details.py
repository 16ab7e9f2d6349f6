"""What went wrong, line by line: the key line, the source under it, where an output differs, what was seen.

Takes out what says nothing about the candidate (frames of other people's files, repetitions). Gives plain text of
any length; does not know how it is laid out or shortened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kb_ray.prompts.hints import doubts
from kb_ray.records import ErrorDetail, Status, Verdict

_MAX_NAMES = 8
_MAX_NAME = 60
_MAX_SOURCE = 200
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_PREFIX = re.compile(r"(?:[\w.]*(?:Error|Exception|Failure|Construct|Resources|Interrupt|Warning)|needs a GPU): ")
_FOREIGN_FRAME = re.compile(r'^\s*File ".*(?:site-packages|dist-packages|/lib/python\d|<frozen |kb_ray/)')
_NEWLINE = re.compile(r"\r\n?|\n")
"""What ends a line of Python. `str.splitlines` splits at form feeds and Unicode's separators too."""
_NOISE = re.compile(
    r"^(?:Traceback \(most recent call last\):|(?:During handling of|The above exception was).*exception.*:?)\s*$"
)


def details(verdict: Verdict, code: str | None) -> str:
    """The lines, without terminal colours, control characters and runs of backticks that need a long fence."""
    lines = _error(verdict.error, code) if verdict.error else ()
    seen = _seen(verdict) if verdict.status in (Status.HACK, Status.NO_KERNEL) else ()
    text = _CONTROL.sub("", "\n".join([*lines, *seen]).replace("\r\n", "\n"))
    return re.sub(r"`{6,}", "`````", text).strip("\n")


def counted(counts: Mapping[str, int]) -> str:
    """`aten::add x10, aten::relu x5`, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return listed([f"{name[:_MAX_NAME]} x{count}" for name, count in ordered])


def listed(names: Sequence[str]) -> str:
    """Names in a row, a bounded number of them."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(name[: _MAX_NAME + 10] for name in names[:_MAX_NAMES]) + more


def without_noise(text: str) -> list[str]:
    """The lines of a traceback or log that are about the candidate: its own frames, and what was raised."""
    kept: list[str] = []
    skipping = False
    for line in text.splitlines():
        if _FOREIGN_FRAME.match(line):
            skipping = True
        elif skipping and line.startswith("    "):
            continue  # the source of a frame that was left out, and the marks under it
        else:
            skipping = False
            if line.strip() and not _NOISE.match(line):
                kept.append(line.rstrip())
    return kept


def _error(error: ErrorDetail, code: str | None) -> Iterator[str]:
    where = f"line {error.line}: " if error.line is not None else ""
    yield f"{where}{error.message}"
    source = _source(error.line, code)
    shown_below = error.line is not None and re.search(rf"^\s*{error.line} \| ", error.detail, re.MULTILINE)
    if source is not None and not shown_below:
        yield f"{error.line} | {source}"
    yield from _difference(error)
    repeated = {*_spellings(error.message), f"line {error.line}: {(source or '').strip()}"}
    yield from (line for line in without_noise(error.detail) if line.strip() not in repeated)


def _spellings(message: str) -> Iterator[str]:
    """A key line as it stands and without the types and words put in front of it, with a last colon and without."""
    said = message.strip()
    while said:
        yield from (said, f"{said}:")
        prefix = _PREFIX.match(said)
        said = said[prefix.end() :] if prefix else ""


def _source(line: int | None, code: str | None) -> str | None:
    lines = _NEWLINE.split(code or "")
    # What follows the last end of a line is no line where nothing does.
    count = len(lines) if lines[-1] else len(lines) - 1
    return lines[line - 1][:_MAX_SOURCE] if line is not None and 1 <= line <= count else None


def _difference(error: ErrorDetail) -> Iterator[str]:
    """Where and by how much an output differs, as far as it is known and the key line does not say it."""
    which = f" of {error.output}" if error.output else ""
    counts = f"{error.wrong_elements} of {error.total_elements}"
    if error.wrong_elements is not None and f"{counts} wrong" not in error.message:
        pattern = f" ({error.pattern})" if error.pattern else ""
        yield f"Wrong elements{which}: {counts}{pattern}"
    elif error.pattern and error.pattern.casefold() not in error.message.casefold():
        yield f"Pattern: {error.pattern}"
    elif error.output and error.output not in error.message:
        yield f"Output: {error.output}"
    pair = f"expected {error.expected}, got {error.got}"
    whole = error.position is None and f"{error.expected}" in error.message and f"{error.got}" in error.message
    if (error.expected is not None or error.got is not None) and pair not in error.message and not whole:
        at = f"At {list(error.position)}: " if error.position is not None else ""
        yield f"{at}{pair}"
    sizes = (("absolute", error.max_abs_error), ("relative", error.max_rel_error))
    told = {"absolute"} if "largest error" in error.message else set[str]()
    known = ", ".join(f"{kind} {size:.4g}" for kind, size in sizes if size is not None and kind not in told)
    if known:
        yield f"Largest error: {known}"


def _seen(verdict: Verdict) -> Iterator[str]:
    """What was seen while the code ran, for a verdict that says it did not do the work itself."""
    evidence = verdict.evidence
    if evidence.kernel_launches is not None:
        names = f" ({listed(evidence.kernels)})" if evidence.kernels else ""
        yield f"Launches of kernels of this file: {evidence.kernel_launches}{names}"
    if evidence.torch_ops:
        yield f"PyTorch operators that computed: {counted(evidence.torch_ops)}"
    yield from doubts(verdict)
