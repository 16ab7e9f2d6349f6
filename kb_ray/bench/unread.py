"""Candidates that nobody reads: longer than any kernel, or no text at all. The verdict on one, without a worker.

A model that repeats itself writes without end. That is its own failure, and no reason to refuse those that were sent
beside it. Pure; knows no task and no HTTP.
"""

from __future__ import annotations

from typing import Literal

from kb_ray.bench.protocol import VERIFIER_VERSION
from kb_ray.bench.static import MAX_CHARACTERS
from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import Environment, ErrorDetail, Evidence, Stage, Status, Verdict


def unread(code: str, longest: int = MAX_CHARACTERS, device: Literal["cuda", "cpu"] | None = None) -> Verdict | None:
    """The verdict on a candidate of more than `longest` characters, or with half of a surrogate pair; None for others.

    `device`: where it would have been verified, as far as that is known.
    """
    if len(code) > longest:
        message = f"the file has {len(code)} characters, more than the {longest} that are read"
        return _verdict(Status.FORBIDDEN, message, device)
    try:
        code.encode()
    except UnicodeEncodeError as error:
        message = f"the code cannot be parsed: half a character (a lone surrogate) at {error.start}"
        return _verdict(Status.SYNTAX_ERROR, message, device)
    return None


def _verdict(status: Status, message: str, device: Literal["cuda", "cpu"] | None) -> Verdict:
    """As the verifier gives it where the source alone decides."""
    return Verdict.of(
        status, Stage.STATIC, error=ErrorDetail(category=CATEGORY_BY_STATUS[status], message=message),
        env=Environment(device=device), evidence=Evidence(kernel_launches=0), trusted=device == "cuda",
        verifier_version=VERIFIER_VERSION,
    )  # fmt: skip
