"""Asks the verifier about tasks instead of candidates: does the reference run, and what does the gate hold
against it? In this process's own evaluator, without Ray.

Says what is asked; how it is found out is the judge's business. Never runs a task's code outside of the sandbox.
"""

from __future__ import annotations

import itertools
import os
from types import TracebackType
from typing import Self

from kb_ray.bench.actor import Device, assigned_gpu
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError
from kb_ray.records import Task, Verdict

_TRIES = 2


def inspection(request_id: str, task: Task, settings: BenchSettings, max_bytes: int | None = None) -> BenchRequest:
    """The request; `max_bytes`: a task whose inputs, weights and outputs take more is not run."""
    return BenchRequest(
        request_id=request_id, task=task, kernel_code="", settings=settings, inspect=True, max_bytes=max_bytes
    )


class Inspector:
    """An evaluator for tasks, one after the other. Use it with `with`: its processes live as long.

    InfraError where they do not start.
    """

    def __init__(self, device: Device, timeout_s: float = 60.0, max_bytes: int | None = None) -> None:
        self._settings = BenchSettings(device=device, timeout_s=timeout_s)
        self._max_bytes = max_bytes
        gpu = assigned_gpu() if device == "cuda" else None
        self._evaluator = Evaluator(device, gpu, 1, f"kb-inspect-{os.getpid()}")
        self._ids = itertools.count()

    def __enter__(self) -> Self:
        self._evaluator.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._evaluator.stop()

    def __call__(self, task: Task) -> Verdict:
        """`ok` with the task's flags in `evidence`, or `infra_error` with what its reference did wrong.

        InfraError where the evaluator itself failed twice.
        """
        for attempt in range(_TRIES):
            try:
                return self._evaluator.evaluate(inspection(str(next(self._ids)), task, self._settings, self._max_bytes))
            except InfraError:
                if attempt == _TRIES - 1:
                    raise
                self._evaluator.stop()
                self._evaluator.start()
        raise AssertionError("unreachable")
