"""Has the kernels of a corpus verified by our own pool, once each, and keeps the verdicts.

Knows how an example becomes a request; not how a verdict is reached, nor what becomes of those that fail.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest, BenchSettings
from kb_ray.errors import InfraError, TaskError
from kb_ray.records import Record, Status, Task, Verdict
from kb_ray.retrieve.example import Example
from kb_ray.tasks.program import InitConvention
from kb_ray.tasks.rows import row_task

_TEXT = pa.string()
_SCHEMA = pa.schema(
    {"example_id": _TEXT, "status": _TEXT, "stage": _TEXT, "correct": pa.bool_(), "trusted": pa.bool_(),
     "speedup": pa.float64(), "error": _TEXT, "device": _TEXT, "verifier_version": _TEXT, "tries": pa.int64()}
)  # fmt: skip
_MOST_TRIES = 2
"""Starts of a build in which a kernel is asked about again after our own side failed."""

Evaluate = Callable[[BenchRequest], Verdict]
"""Gives a verdict; called from several threads."""


class Outcome(Record):
    """What the verifier said of one example, as a row of the file that keeps it."""

    example_id: str
    status: str | None = None
    """None: it could not be asked about, `error` says why."""
    stage: str | None = None
    correct: bool
    trusted: bool | None = None
    speedup: float | None = None
    error: str | None = None
    device: str | None = None
    verifier_version: str | None = None
    tries: int = 1
    """Starts of a build that asked."""

    @property
    def asked(self) -> bool:
        """Whether the verifier was asked at all."""
        return self.status is not None

    @property
    def unjudged(self) -> bool:
        """Whether our own side failed, so that nothing is known of the kernel."""
        return self.status == Status.INFRA_ERROR

    @property
    def to_be_asked(self) -> bool:
        """Whether another start asks again."""
        return self.unjudged and self.tries < _MOST_TRIES


@dataclass(frozen=True)
class Verified:
    """An example, with what our verdict changes of it, and what became of it."""

    example: Example
    outcome: Outcome


class Verifier:
    """Verifies examples, `concurrency` at once."""

    def __init__(self, evaluate: Evaluate, settings: BenchSettings, concurrency: int) -> None:
        self._evaluate, self._settings, self._concurrency = evaluate, settings, concurrency
        self.identity = f"{VERIFIER_VERSION} {settings.model_dump_json()}"

    def __call__(self, examples: Sequence[Example], earlier: Mapping[str, Outcome]) -> list[Verified]:
        """The examples in their order, with verdict and, where it was timed, our speedup.

        `earlier`: what earlier starts of the same build were told, by example; only what is to be asked again is.
        InfraError where there is no verdict on any of several: then it is our side that fails. On some, it may be their
        programs that do not run.
        """
        with ThreadPoolExecutor(self._concurrency) as threads:
            found = list(threads.map(lambda example: self._verify(example, earlier.get(example.example_id)), examples))
        asked = [item.outcome for item in found if item.outcome.asked]
        if len(asked) > 1 and all(outcome.unjudged for outcome in asked):
            raise InfraError(f"no kernel of {len(asked)} could be verified: {asked[0].error or 'no reason'}")
        return found

    def _verify(self, example: Example, earlier: Outcome | None) -> Verified:
        if earlier is not None and not earlier.to_be_asked:
            return Verified(_judged(example, earlier), earlier)
        if example.verdict is not None:
            return _unasked(example, "verified in the run that it is from", correct=bool(example.correct))
        if example.language != "triton":
            return _unasked(example, "only Triton kernels can be verified")
        try:
            task = _task(example)
        except TaskError as error:
            return _unasked(example, f"the program {error}")
        request = BenchRequest(
            request_id=f"index-{uuid.uuid4().hex}",
            task=task, kernel_code=example.kernel_code, settings=self._settings,
        )  # fmt: skip
        outcome = _outcome(example, self._evaluate(request), 1 if earlier is None else earlier.tries + 1)
        return Verified(_judged(example, outcome), outcome)


def encode_outcomes(verified: Sequence[Verified]) -> bytes:
    """A Parquet file with a row for each example."""
    rows = [item.outcome.model_dump() for item in verified]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), sink, compression="zstd")
    return sink.getvalue()


def decode_outcomes(data: bytes) -> dict[str, Outcome]:
    """What `encode_outcomes` wrote, by example; empty where it is no such file: then all are asked about again."""
    try:
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
        return {row["example_id"]: Outcome.model_validate(row) for row in rows}
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return {}


def _judged(example: Example, outcome: Outcome) -> Example:
    """The example with our verdict in place of what its corpus says, also of its speed: only what we timed counts."""
    if outcome.status is None:
        return example
    found = {
        "verdict": outcome.status, "correct": outcome.correct, "trusted": outcome.trusted, "speedup": outcome.speedup,
    }  # fmt: skip
    return example.model_copy(update=found)


def _unasked(example: Example, why: str, correct: bool = False) -> Verified:
    return Verified(example, Outcome(example_id=example.example_id, correct=correct, error=why))


def _outcome(example: Example, verdict: Verdict, tries: int) -> Outcome:
    return Outcome(
        example_id=example.example_id, status=str(verdict.status), stage=str(verdict.stage), correct=verdict.correct,
        trusted=verdict.trusted, speedup=verdict.speedup, error=verdict.error.message if verdict.error else None,
        device=verdict.env.device, verifier_version=verdict.verifier_version, tries=tries,
    )  # fmt: skip


def _task(example: Example) -> Task:
    convention: InitConvention | None = None
    if example.init_convention in ("args", "args_kwargs"):
        convention = "args" if example.init_convention == "args" else "args_kwargs"
    row = {"code": example.pytorch_code, "entry_point": example.entry_point}
    return row_task(
        row, code_column="code", source=example.corpus, default_name=example.example_id,
        task_id=example.example_id, init_convention=convention,
    )  # fmt: skip
