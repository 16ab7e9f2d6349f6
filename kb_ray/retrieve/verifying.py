"""Has the kernels of a corpus verified by our own pool, once each, and keeps the verdicts.

Knows how an example becomes a request; not how a verdict is reached, nor what becomes of those that fail.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError, TaskError
from kb_ray.records import Status, Task, Verdict
from kb_ray.retrieve.example import Example
from kb_ray.tasks.program import InitConvention
from kb_ray.tasks.rows import row_task

_TEXT = pa.string()
_SCHEMA = pa.schema(
    {"example_id": _TEXT, "status": _TEXT, "stage": _TEXT, "correct": pa.bool_(), "trusted": pa.bool_(),
     "speedup": pa.float64(), "error": _TEXT, "device": _TEXT, "verifier_version": _TEXT}
)  # fmt: skip

Evaluate = Callable[[BenchRequest], Verdict]
"""Gives a verdict; called from several threads."""


@dataclass(frozen=True)
class Verified:
    """An example and what became of it. `verdict` None: it could not be asked about, `reason` says why."""

    example: Example
    verdict: Verdict | None
    reason: str = ""

    @property
    def correct(self) -> bool:
        """Whether the verifier called the kernel correct, now or in the run that the example is from."""
        return self.example.verdict == Status.OK if self.verdict is None else self.verdict.correct


class Verifier:
    """Verifies examples, `concurrency` at once."""

    def __init__(self, evaluate: Evaluate, settings: BenchSettings, concurrency: int) -> None:
        self._evaluate, self._settings, self._concurrency = evaluate, settings, concurrency

    def __call__(self, examples: Sequence[Example]) -> list[Verified]:
        """The examples in their order, with verdict and, where it was timed, our speedup.

        InfraError where there is no verdict on any of those asked about: then it is our side that fails. On some, it
        is their programs that do not run.
        """
        with ThreadPoolExecutor(self._concurrency) as threads:
            found = list(threads.map(self._verify, examples))
        asked = [item.verdict for item in found if item.verdict is not None]
        if len(asked) > 1 and all(verdict.status is Status.INFRA_ERROR for verdict in asked):
            error = asked[0].error
            raise InfraError(f"no kernel of {len(asked)} could be verified: {error.message if error else 'no reason'}")
        return found

    def _verify(self, example: Example) -> Verified:
        if example.verdict is not None:
            return Verified(example, None, "verified in the run that it is from")
        if example.language != "triton":
            return Verified(example, None, "only Triton kernels can be verified")
        try:
            task = _task(example)
        except TaskError as error:
            return Verified(example, None, f"the program {error}")
        request = BenchRequest(
            request_id=f"index-{uuid.uuid4().hex}",
            task=task, kernel_code=example.kernel_code, settings=self._settings,
        )  # fmt: skip
        verdict = self._evaluate(request)
        found = {"verdict": str(verdict.status), "speedup": verdict.speedup or example.speedup}
        return Verified(example.model_copy(update=found), verdict)


def encode_verdicts(verified: Sequence[Verified]) -> bytes:
    """A Parquet file with a row for each example."""
    rows = [
        {
            "example_id": item.example.example_id,
            "status": str(verdict.status) if verdict else None,
            "stage": str(verdict.stage) if verdict else None,
            "correct": item.correct,
            "trusted": verdict.trusted if verdict else None,
            "speedup": verdict.speedup if verdict else None,
            "error": verdict.error.message if verdict and verdict.error else item.reason or None,
            "device": verdict.env.device if verdict else None,
            "verifier_version": verdict.verifier_version if verdict else None,
        }
        for item in verified
        for verdict in [item.verdict]
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), sink, compression="zstd")
    return sink.getvalue()


def _task(example: Example) -> Task:
    convention: InitConvention | None = None
    if example.init_convention in ("args", "args_kwargs"):
        convention = "args" if example.init_convention == "args" else "args_kwargs"
    row = {"code": example.pytorch_code, "entry_point": example.entry_point}
    return row_task(
        row, code_column="code", source=example.corpus, default_name=example.example_id,
        task_id=example.example_id, init_convention=convention,
    )  # fmt: skip
