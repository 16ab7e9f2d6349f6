"""What the HTTP service is sent and answers, in the field names of the Python API.

Checks what a request says and turns it into a BenchRequest; a verdict becomes a mapping that is JSON everywhere. Does
not know HTTP, who asked, or how a verdict is reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from kb_ray.bench.actor import Device
from kb_ray.bench.api import answer, bench_request
from kb_ray.bench.fair import Priority
from kb_ray.bench.protocol import BenchRequest
from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Record, Verdict

NAME_CHARS = 128
"""Characters at most of a name that a caller chooses."""
_SHOWN = 60


class Limits(Record):
    """What one request may be at most."""

    body_bytes: int = Field(default=8 << 20, ge=1)
    """Of a whole body; 413 above it."""
    code_chars: int = Field(default=200_000, ge=1)
    """Of one program, the candidate's or the reference's."""
    batch: int = Field(default=256, ge=1)
    """Requests of one batch."""


def _whole(text: str) -> str:
    """Halves of characters can be written in JSON, and nowhere else."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half a character (a lone surrogate) at {error.start}") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
Name = Annotated[str, Field(max_length=NAME_CHARS), AfterValidator(_whole)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Candidate(_Body):
    """One candidate and what it is measured by: the arguments of `benchmark_kernelbench` (with `problem_code`) or of
    `benchmark_triton_kernel` (with `reference_torch_code`)."""

    kernel_code: Text
    """The candidate: `ModelNew` or `triton_kernel_wrapper`, with at least one `@triton.jit` function."""
    problem_code: str | None = None
    """A reference with `Model`, `get_inputs` and `get_init_inputs`."""
    reference_torch_code: str | None = None
    """A reference with `reference_impl`."""
    input_shapes: dict[str, Any] | None = None
    """With `reference_torch_code`: {"x": {"shape": [1024], "dtype": "float32"}}; left out, the reference has its own
    `input_shapes` or `get_inputs()`."""
    n_correctness: int = 5
    """Input sets that must pass, 1 to 100."""
    n_trials: int = 50
    """Timed calls of each side, 3 to 10,000."""
    kernel_name: Name | None = None
    timeout_s: float = 60.0
    """Seconds for each phase while it runs, 3,600 at most."""
    torch_ops: Literal["allow", "report", "forbid"] = "report"
    generalise: Literal["off", "report", "require"] = "report"
    baseline: Literal["eager", "compile"] = "eager"
    measure_performance: bool = True
    tf32: bool = False
    request_id: Name | None = None
    """Comes back with the answer, as it was given."""


class _Origin(_Body):
    client: Name = ""
    """A name for this use of the service; uses of different names share it evenly."""
    priority: Priority = "normal"
    """Among the requests of the same token."""


class EvaluateBody(Candidate, _Origin):
    """Body of POST /evaluate."""


class BatchBody(_Origin):
    """Body of POST /evaluate/batch."""

    requests: list[Candidate] = Field(min_length=1)


def to_request(candidate: Candidate, limits: Limits, device: Device) -> BenchRequest:
    """What the pool is asked. ConfigError or TaskError says which field cannot be used and why."""
    reference = _reference(candidate)
    for name, code in (("kernel_code", candidate.kernel_code), reference):
        if len(code) > limits.code_chars:
            raise ConfigError(f"{name}: {len(code)} characters, {limits.code_chars} are allowed")
    _check_names(candidate.input_shapes or {})
    try:
        return bench_request(
            candidate.kernel_code,
            reference[1],
            candidate.input_shapes,
            candidate.n_correctness,
            candidate.n_trials,
            candidate.kernel_name,
            device=device,
            timeout_s=candidate.timeout_s,
            torch_ops=candidate.torch_ops,
            generalise=candidate.generalise,
            baseline=candidate.baseline,
            measure_performance=candidate.measure_performance,
            tf32=candidate.tf32,
        )
    except TaskError as error:
        raise TaskError(f"{reference[0]}: {error}") from None


def to_answer(verdict: Verdict, request_id: str | None) -> dict[str, Any]:
    """The Python API's mapping of a verdict, with the caller's id; numbers that JSON has no word for as text."""
    mapping: dict[str, Any] = _plain(answer(verdict))
    return mapping if request_id is None else mapping | {"request_id": request_id}


def problem(errors: Sequence[Mapping[str, Any]]) -> str:
    """The first of pydantic's errors over a body, as one line that says where and what."""
    first = errors[0]
    kind, loc = first["type"], [str(part) for part in first["loc"] if part != "body"]
    where = ".".join(loc) or "body"
    if kind == "json_invalid":
        return f"the body is no JSON: {first.get('ctx', {}).get('error', 'it does not parse')} (character {where})"
    if not loc and (kind == "missing" or isinstance(first.get("input"), bytes)):
        return "the body is no JSON: send an object, as Content-Type application/json"
    if kind == "missing":
        # A mistyped name is both.
        same = [error["loc"] for error in errors if error["loc"][:-1] == first["loc"][:-1]]
        unknown = [error["loc"][-1] for error in errors if error["type"] == "extra_forbidden" and error["loc"] in same]
        return f"{where}: is missing" + (f"; {unknown[0]}: no such field" if unknown else "")
    if kind == "extra_forbidden":
        return f"{where}: no such field; /openapi.json lists them"
    given = repr(first.get("input"))
    shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}..."
    return f"{where}: {first['msg']}, got {shown}"


def _reference(candidate: Candidate) -> tuple[str, str]:
    """(field, code) of the reference."""
    if (candidate.problem_code is None) == (candidate.reference_torch_code is None):
        both = candidate.problem_code is not None
        raise ConfigError(f"problem_code, reference_torch_code: give one of them, not {'both' if both else 'none'}")
    if candidate.problem_code is None:
        return "reference_torch_code", str(candidate.reference_torch_code)
    if candidate.input_shapes is not None:
        raise ConfigError("input_shapes: goes with reference_torch_code; problem_code has get_inputs()")
    return "problem_code", candidate.problem_code


def _check_names(shapes: Mapping[str, Any]) -> None:
    """TaskError for names of inputs that no program has. Not the body's to refuse: it holds a batch's others too."""
    if len(shapes) > NAME_CHARS:
        raise TaskError(f"input_shapes: {len(shapes)} inputs, {NAME_CHARS} are allowed")
    for name in shapes:
        try:
            _whole(name)
        except ValueError as error:
            raise TaskError(f"input_shapes: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
