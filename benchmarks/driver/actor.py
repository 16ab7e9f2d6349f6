"""A bench worker that sleeps where the real one evaluates: the same methods, in a real Ray actor.

The first three candidates of an episode are wrong, the fourth is right: each has four turns. It notes when it
was busy and leaves that in a file when it is stopped. Where and how long comes from the environment, since workers are
made by Ray. Verdicts are made once: what a real one costs is measured elsewhere.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from benchmarks.driver.delays import drawn
from kb_ray.bench.actor import WorkerStats
from kb_ray.bench.neighbours import GpuUse
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchSettings, judged
from kb_ray.bench.seats import Seats
from kb_ray.bench.site import Site, site
from kb_ray.records import Environment, ErrorDetail, Evidence, Stage, Status, Task, Verdict

MEAN_S, SPANS = "KB_DRIVER_BENCH_S", "KB_DRIVER_SPANS"
WRONG_TURNS = 3
_TESTS = BenchSettings().n_correctness
_ABOUT = "0" * 32
"""Where a verdict says which candidate it is about."""


class SleepingActor:
    """See `kb_ray.bench.actor.BenchActor`."""

    def __init__(self, device: str, concurrency: int, name: str, gpu: str | None = None, fault: Any = None) -> None:
        self._name, self._mean_s = name, float(os.environ.get(MEAN_S, "0.5"))
        self._spans: list[tuple[float, float]] = []
        self._seats = Seats(concurrency)
        self._wrong, self._right = _verdict(Status.MISMATCH), _verdict(Status.OK)

    def ready(self) -> str | None:
        """At once."""
        return None

    readmit = ready

    def evaluate(self, request_json: str) -> str:
        """A verdict on nothing, after a while."""
        request = json.loads(request_json)
        name, task = request["request_id"], request["task"]
        if not self._seats.take(name):
            return json.dumps({"request_id": name, "infra": "called back", "called_back": True})
        began = time.monotonic()
        time.sleep(drawn(name, self._mean_s))
        self._spans.append((began, time.monotonic()))
        self._seats.leave()
        verdict = self._wrong if int(name.rpartition("-")[2]) < WRONG_TURNS else self._right
        about = judged(Task.model_construct(reference_code=task["reference_code"]), request["kernel_code"])
        return f'{{"request_id":{json.dumps(name)},"verdict":{verdict.replace(_ABOUT, about)}}}'

    def call_back(self, request_id: str) -> bool:
        """As the real one."""
        return self._seats.call_back(request_id)

    def cancel(self, request_id: str) -> bool:
        """It cannot be woken."""
        return self._seats.call_back(request_id)

    def stats(self) -> WorkerStats:
        """As the real one."""
        return WorkerStats(
            name=self._name, host=socket.gethostname(), pid=os.getpid(), gpu=None, verdicts=len(self._spans),
            restarts=0, busy=0, pids={},
        )  # fmt: skip

    def site(self) -> Site:
        """As the real one."""
        return site()

    def gpu_use(self) -> GpuUse:
        """None."""
        return GpuUse(node=None, host=socket.gethostname(), own=None, used={})

    def stop(self) -> None:
        """Leaves its spans."""
        if folder := os.environ.get(SPANS):
            Path(folder, f"{self._name}.json").write_text(json.dumps(self._spans))


def _verdict(status: Status) -> str:
    """JSON of a verdict with what a real one carries."""
    error = None
    if status is Status.MISMATCH:
        error = ErrorDetail(
            category="CORRECTNESS ERROR", message="out differs in 3071 of 4096 elements", output="out",
            position=(0, 17), expected="0.73184", got="-1.2", pattern="all elements, constant factor 2",
            max_abs_error=1.9, max_rel_error=2.6, wrong_elements=3071, total_elements=4096,
        )  # fmt: skip
    found = Verdict.of(
        status, Stage.FULL, tests_total=_TESTS, tests_passed=_TESTS if status is Status.OK else 0, error=error,
        evidence=Evidence(kernel_launches=9, kernels=("scale_kernel",), torch_ops={"aten::empty_like": 9},
                          generalises={"shape": "ok", "dtype": "ok"}, input_bytes=16384, sandbox_level="full"),
        env=Environment(device="cpu", torch="2.13.0", triton="3.7.1", python="3.12", host="bench"),
        verifier_version=VERIFIER_VERSION, judged=_ABOUT,
        seconds={"queue": 0.01, "load": 0.3, "compile": 0.5, "check": 0.4, "total": 1.2},
    )  # fmt: skip
    return found.model_dump_json()
