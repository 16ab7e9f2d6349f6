"""Evaluation as functions: called directly in this process, or `.remote(...)` through the Ray pool.

Both answer with a plain mapping that has the Verdict's fields and the names `correctness`, `speedup`,
`fast_0`, `fast_1`, `fast_2` and `error`. Does not know episodes, prompts or traces, nor how a verdict is
reached.
"""

from __future__ import annotations

import atexit
import functools
import glob
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Literal, ParamSpec, TypedDict, Unpack

from pydantic import ValidationError

from kb_ray.bench.actor import BenchActor, Device, Reply
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest, BenchSettings
from kb_ray.categories import CATEGORY_BY_STATUS, REFERENCE_ERROR
from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import ErrorDetail, Stage, Status, Task, Verdict
from kb_ray.tasks.program import read_program

P = ParamSpec("P")
Shapes = Mapping[str, Mapping[str, Any]]


class Policy(TypedDict, total=False):
    """What else may be said of how to verify, by keyword: the fields of the same names of `BenchSettings`."""

    timeout_s: float
    torch_ops: Literal["allow", "report", "forbid"]
    generalise: Literal["off", "report", "require"]
    baseline: Literal["eager", "compile"]
    measure_performance: bool
    tf32: bool


CONCURRENCY = 4
"""Candidates that one worker checks at once; timing is alone in any case."""
_LOCAL_TRIES = 3
_UNNAMED = "kernel"
"""A task's name where the caller gives none."""

_lock = threading.Lock()
_local: dict[str, BenchActor] = {}


class Benchmark(Generic[P]):
    """A function from its own arguments to a verdict's mapping, made from one that builds the request."""

    def __init__(self, request: Callable[P, BenchRequest]) -> None:
        self.request = request
        functools.update_wrapper(self, request)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Evaluates in this process and returns the mapping (see `answer`)."""
        return answer(evaluate_here(self.request(*args, **kwargs)))

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Evaluates in the Ray pool and returns an ObjectRef of the mapping at once."""
        wanted = self.request(*args, **kwargs).model_dump_json()
        return _front().answer.remote(wanted)


@Benchmark
def benchmark_triton_kernel(
    kernel_code: str,
    reference_torch_code: str,
    input_shapes: Shapes | None,
    n_correctness: int = 5,
    n_trials: int = 50,
    kernel_name: str | None = None,
    **policy: Unpack[Policy],
) -> BenchRequest:
    """Verifies and times a kernel against `reference_impl`.

    `input_shapes`: {"x": {"shape": [1024], "dtype": "float32"}} by parameter; None: the reference's `get_inputs()`.
    `policy`: see Policy. Raises TaskError for a reference that cannot be used, ConfigError for numbers or shapes.
    """
    return bench_request(
        kernel_code, reference_torch_code, input_shapes, n_correctness, n_trials, kernel_name, **policy
    )


@Benchmark
def benchmark_kernelbench(
    kernel_code: str,
    problem_code: str,
    n_correctness: int = 5,
    n_trials: int = 50,
    kernel_name: str | None = None,
    **policy: Unpack[Policy],
) -> BenchRequest:
    """Verifies and times a kernel against a problem with `Model`, `get_inputs` and `get_init_inputs`.

    `policy`: see Policy. Raises TaskError for a problem that cannot be used, ConfigError for numbers out of range.
    """
    return bench_request(kernel_code, problem_code, None, n_correctness, n_trials, kernel_name, **policy)


class BatchBenchmark:
    """Many requests, each a dict of the arguments of one of the two other functions."""

    def requests(self, requests: Sequence[Mapping[str, Any]]) -> list[BenchRequest]:
        """The dicts as requests: with `problem_code`, or with `reference_torch_code`, as they have it.

        Raises ConfigError or TaskError that names the first dict which cannot be used.
        """
        return [_batch_item(number, arguments) for number, arguments in enumerate(requests)]

    def __call__(self, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Evaluates in this process and returns the mappings in the order of the requests."""
        wanted = self.requests(requests)
        with ThreadPoolExecutor(CONCURRENCY) as threads:
            return [answer(verdict) for verdict in threads.map(evaluate_here, wanted)]

    def remote(self, requests: Sequence[Mapping[str, Any]]) -> Any:
        """Evaluates in the Ray pool and returns an ObjectRef of the mappings, in the requests' order."""
        wanted = [request.model_dump_json() for request in self.requests(requests)]
        return _front().answer_batch.remote(wanted)


benchmark_batch = BatchBenchmark()


def bench_request(
    kernel_code: str,
    reference_code: str,
    input_shapes: Shapes | None = None,
    n_correctness: int = 5,
    n_trials: int = 50,
    kernel_name: str | None = None,
    *,
    device: Device | None = None,
    **policy: Unpack[Policy],
) -> BenchRequest:
    """One request of a reference in either style; `device` None: a GPU where this machine has one."""
    device = device or local_device()
    try:
        settings = BenchSettings(n_correctness=n_correctness, n_trials=n_trials, device=device, **policy)
        task = reference_task(reference_code, kernel_name or _UNNAMED, input_shapes)
        return BenchRequest(request_id=uuid.uuid4().hex, task=task, kernel_code=kernel_code, settings=settings)
    except ValidationError as error:
        raise ConfigError(invalid(error)) from None


def invalid(error: ValidationError) -> str:
    """The first thing that is wrong with given settings, as one line."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}, got {first['input']!r}"


def reference_task(reference_code: str, name: str = _UNNAMED, input_shapes: Shapes | None = None) -> Task:
    """The task of a reference that stands alone. Raises TaskError where it is no program that can be run."""
    try:
        program = read_program(reference_code, shapes=input_shapes or None)
    except TaskError as error:
        raise TaskError(f"the reference{'' if name == _UNNAMED else f' of {name}'} {error}") from None
    return Task(
        task_id=f"api/{name}", source="api", name=name, reference_code=reference_code, style=program.style,
        entry_point=program.entry_point, init_convention=program.init_convention, input_shapes=program.input_shapes,
    )  # fmt: skip


def answer(verdict: Verdict) -> dict[str, Any]:
    """A verdict as a mapping of plain values.

    `correctness` repeats `correct`; `error` is one line or None and `error_detail` is its structure. Where
    nothing could be timed, `speedup`, `fast_1` and `fast_2` are None.
    """
    fields = verdict.model_dump(mode="json")
    detail = verdict.error
    fields["error_detail"] = fields["error"]
    fields["error"] = None if detail is None else f"{detail.category}: {detail.message}"
    fields["correctness"] = verdict.correct
    return fields


def evaluate_here(request: BenchRequest) -> Verdict:
    """The verdict, reached in this process's own Evaluator (started at the first call, ended at exit).

    Thread-safe. Where our side fails three times, or the reference once, the verdict's status is `infra_error`.
    """
    worker = _local_worker(request.settings.device)
    for _ in range(_LOCAL_TRIES):
        reply = Reply.model_validate_json(worker.evaluate(request.model_dump_json()))
        if reply.verdict is not None:
            return reply.verdict
        if reply.blames_reference or (reply.quarantine is not None and not _readmitted(worker)):
            break
    return infra_verdict(str(reply.infra), reference=reply.blames_reference)


def evaluate_on_ray(request: BenchRequest) -> Verdict:
    """The verdict, reached in the Ray pool that `.remote` uses; `infra_error` where Ray fails. Blocks; thread-safe."""
    from kb_ray.bench.front import ask

    return ask(request)


def _readmitted(worker: BenchActor) -> bool:
    """Whether this process's own worker is out of quarantine, after a restart if need be."""
    with _lock:
        return worker.stats().quarantine is None or worker.readmit() is None


def local_device() -> Device:
    """ "cuda" where this process can see an NVIDIA device, found without asking CUDA; else "cpu"."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip()
    return "cuda" if visible not in ("", "-1") and glob.glob("/dev/nvidia[0-9]*") else "cpu"


def usable(device: Literal["auto", "cuda", "cpu"]) -> Device:
    """The device that a command is to use on this machine; ConfigError for a GPU where none is seen."""
    here = local_device()
    if (device, here) == ("cuda", "cpu"):
        raise ConfigError("--device cuda: no NVIDIA GPU is seen here: leave it out, or look at CUDA_VISIBLE_DEVICES")
    return here if device == "auto" else device


def _front() -> Any:
    # Ray is needed from here on only: direct calls do without it.
    from kb_ray.bench.front import front

    return front()


def _local_worker(device: Device) -> BenchActor:
    with _lock:
        if device not in _local:
            _local[device] = BenchActor(device, CONCURRENCY, f"kb-bench-local-{os.getpid()}")
            atexit.register(_local[device].stop)
        return _local[device]


def _batch_item(number: int, arguments: Mapping[str, Any]) -> BenchRequest:
    kind = benchmark_kernelbench if "problem_code" in arguments else benchmark_triton_kernel
    try:
        return kind.request(**arguments)
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"request {number} of the batch: {error}") from None
    except TaskError as error:
        raise TaskError(f"request {number} of the batch: {error}") from None


def infra_verdict(reason: str, *, reference: bool = False) -> Verdict:
    """What stands in place of a verdict that could not be reached: never the candidate's fault, never a reward.

    `reference`: whether the reference cannot be run, so that asking again is of no use; its category says so.
    """
    category = REFERENCE_ERROR if reference else CATEGORY_BY_STATUS[Status.INFRA_ERROR]
    error = ErrorDetail(category=category, message=reason)
    return Verdict.of(Status.INFRA_ERROR, Stage.STATIC, error=error, verifier_version=VERIFIER_VERSION)
