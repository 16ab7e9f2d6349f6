"""Advice for failures that have a usual cause, and words for why a measured speed is doubted.

Wording stands in `hints.toml`; here is what decides which piece of advice applies: the error's words, the pattern
of wrong elements, facts of the verdict, and accesses without a mask in the source. Pure; never runs the source.
"""

from __future__ import annotations

import ast
import re
import tomllib
import warnings
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from kb_ray.records import ErrorDetail, Record, Status, Verdict

MAX_HINTS = 2
_MAX_ACCESSES = 3
_MAX_CALL = 80
_OUTSIDE_SHARE = 0.7
"""Below this share of a call's time in the file's own kernels, the rest is what to look at."""
_POINTERS_ONLY = {"load": 1, "store": 2}
"""Positional arguments of an access without a mask."""
_GUARDS = {"mask", "boundary_check"}


class Hint(Record):
    """Advice and when it applies; see hints.toml."""

    error: str | None = None
    """A regular expression to be found in the error's message or detail."""
    pattern: str | None = None
    """One to be found in the pattern of wrong elements."""
    fact: str | None = None
    """A name of `facts`."""
    text: str


def hints(verdict: Verdict, code: str | None) -> list[str]:
    """At most MAX_HINTS pieces of advice, as list items; `code` is the candidate's file."""
    error = verdict.error or ErrorDetail(category="", message="")
    said, pattern, known = f"{error.message}\n{error.detail}", error.pattern or "", set(facts(verdict))
    found = [
        f"- {hint.text}"
        for hint in _all_hints()
        if (hint.error and not verdict.correct and re.search(hint.error, said, re.IGNORECASE))
        or (hint.pattern and re.search(hint.pattern, pattern, re.IGNORECASE))
        or (hint.fact and hint.fact in known)
    ]
    return [*_unmasked(verdict, code or ""), *found][:MAX_HINTS]


def facts(verdict: Verdict) -> Iterator[str]:
    """Names for what a verdict on a correct kernel shows, for hints.toml."""
    if not verdict.correct:
        return
    evidence = verdict.evidence
    if evidence.kernel_time_share is not None and evidence.kernel_time_share < _OUTSIDE_SHARE:
        yield "time_outside_kernels"
    if evidence.torch_ops:
        yield "torch_computes"
    if evidence.generalises.get("shape", Status.OK) != Status.OK:
        yield "fails_at_other_shapes"
    if evidence.generalises.get("dtype", Status.OK) != Status.OK:
        yield "fails_at_other_dtypes"


def doubts(verdict: Verdict) -> list[str]:
    """Why the measured speed is not confirmed, in words. What speaks against the task itself is not told: it
    would say how to pass without computing anything."""
    known = _data()["doubts"]
    return [known[flag] for flag in verdict.evidence.flags if flag in known]


def unmasked_accesses(code: str) -> list[tuple[int, str]]:
    """(line, call) of each tl.load and tl.store without mask or boundary check; none where `code` does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_unmasked(node)]
    return sorted((call.lineno, _brief(ast.unparse(call))) for call in calls)


def _is_unmasked(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    allowed = _POINTERS_ONLY.get(function.attr)
    named = {keyword.arg for keyword in call.keywords}
    is_access = function.value.id == "tl" and allowed is not None and None not in named
    return is_access and len(call.args) <= (allowed or 0) and not named & _GUARDS


def _unmasked(verdict: Verdict, code: str) -> Iterator[str]:
    """Where an access beyond a tensor, or a wrong end of the output, may come from."""
    pattern = (verdict.error.pattern if verdict.error else None) or ""
    if verdict.status is not Status.ILLEGAL_ACCESS and "tail" not in pattern:
        return
    accesses = unmasked_accesses(code)
    if accesses:
        listed = "; ".join(f"line {line}: `{call}`" for line, call in accesses[:_MAX_ACCESSES])
        more = f" and {len(accesses) - _MAX_ACCESSES} more" if len(accesses) > _MAX_ACCESSES else ""
        yield f"- {_data()['unmasked']} {listed}{more}."


def _brief(text: str) -> str:
    line = " ".join(text.split()).replace("`", "'")
    return line if len(line) <= _MAX_CALL else line[: _MAX_CALL - 3] + "..."


@cache
def _all_hints() -> tuple[Hint, ...]:
    return tuple(Hint(**fields) for fields in _data()["hint"])


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads((files("kb_ray.prompts") / "hints.toml").read_text("utf-8"))
