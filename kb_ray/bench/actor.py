"""One bench worker: an Evaluator spoken to in JSON, in a Ray actor or in this process.

The class is plain: the pool wraps it with `ray.remote`, the Python API uses it as it is. Never imports torch
or triton; does not know other workers, retries elsewhere, or how a verdict is reached.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import Any, Literal

from kb_ray.bench.gpu_node import gpu_node
from kb_ray.bench.gpu_use import memory_in_use
from kb_ray.bench.host import Evaluator, Fault, GivenUp, Quarantined
from kb_ray.bench.neighbours import GpuUse
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.seats import Seats
from kb_ray.bench.site import Site, site
from kb_ray.errors import InfraError
from kb_ray.records import Record, Status, Verdict

Device = Literal["cuda", "cpu"]


class Reply(Record):
    """What a worker answers: a verdict, or what failed on our side."""

    request_id: str
    """The request's own id, so that no verdict can be given to another request."""
    verdict: Verdict | None = None
    infra: str | None = None
    """One line: what broke. Worth a try on another worker."""
    quarantine: str | None = None
    """One line, with `infra`: this worker's device is not to be trusted until `readmit` says so."""
    cancelled: bool = False
    """With `infra`: its caller gave it up, so nothing broke."""
    called_back: bool = False
    """With `infra`: it had not begun, and may begin anywhere."""
    blames_reference: bool = False
    """The reference itself failed there: if it does so on another worker too, no worker will do."""

    @property
    def broke(self) -> bool:
        """Whether something failed here, so that the worker should be looked at."""
        return self.verdict is None and not self.cancelled and not self.called_back


class WorkerStats(Record):
    """A worker seen from outside."""

    name: str
    host: str
    pid: int
    gpu: str | None
    verdicts: int
    restarts: int
    """How often judge and zygotes had to be started again."""
    busy: int
    """Requests in work."""
    pids: dict[str, int]
    """Process ids of the judge and of the zygotes of candidates and references, of those that live."""
    quarantine: str | None = None
    """Why its device is not trusted now."""


class BenchActor:
    """An Evaluator on one device, for one caller or many threads.

    `concurrency`: requests evaluated at once. `gpu`: index or UUID; None takes the one that Ray assigned,
    else the first visible one. `fault`: see Evaluator. Construction starts nothing: `ready` does, and after a
    failure again.
    """

    def __init__(
        self, device: Device, concurrency: int, name: str, gpu: str | None = None, fault: Fault | None = None
    ) -> None:
        self._name = name
        self._gpu = assigned_gpu() if device == "cuda" and gpu is None else gpu
        self._evaluator = Evaluator(device, self._gpu, concurrency, name, fault=fault)
        self._seats = Seats(concurrency)
        self._lock = threading.Lock()
        self._verdicts = 0
        self._busy = 0
        self._judges: set[int] = set()
        self._stopped = False
        self._quarantine: str | None = None

    def ready(self) -> str | None:
        """Waits until verdicts can be given and returns None, or one line that says why they cannot."""
        try:
            self._evaluator.start()
        except Exception as error:
            return f"{self._where()} could not start: {one_line(error)}"
        self._note_judge()
        return None

    def readmit(self) -> str | None:
        """Starts all processes anew and returns None if the device passes its check then, else why it stays out.

        Requests in work get an infra reply. Blocks, as `ready` does.
        """
        self._evaluator.stop()
        reason = self.ready()
        if reason is None:
            self._quarantine = None
        return reason

    def evaluate(self, request_json: str) -> str:
        """`BenchRequest` as JSON to `Reply` as JSON. Blocks; thread-safe. Never raises for a request.

        One beyond `concurrency` waits for a place, and may be called back meanwhile.
        """
        request = BenchRequest.model_validate_json(request_json)
        if not self._seats.take(request.request_id):
            return self._infra(request, "called back before it began", called_back=True)
        try:
            return self._evaluate(request)
        finally:
            self._seats.leave()

    def call_back(self, request_id: str) -> bool:
        """Lets a request go that has not begun, which then answers `called_back`. False: it has, or is not here."""
        return self._seats.call_back(request_id)

    def _evaluate(self, request: BenchRequest) -> str:
        if self._stopped:
            return self._infra(request, f"{self._where()} was stopped")
        self._count(busy=1)
        try:
            verdict = self._evaluator.evaluate(request)
        except GivenUp as error:
            return self._infra(request, str(error), cancelled=True)
        except Quarantined as error:
            self._quarantine = str(error)
            return self._infra(request, f"{self._where()} is quarantined: {error}", quarantine=str(error))
        except Exception as error:
            # Whatever it is, it is ours: a bad kernel comes back as a verdict.
            return self._infra(request, f"{self._where()}: {one_line(error)}")
        finally:
            self._count(busy=-1)
        self._note_judge()
        if verdict.status is Status.INFRA_ERROR:
            message = verdict.error.message if verdict.error else "no reason given"
            return self._infra(request, f"{self._where()}: {message}", blames_reference=True)
        self._count(verdicts=1)
        return Reply(request_id=request.request_id, verdict=verdict).model_dump_json()

    def cancel(self, request_id: str) -> bool:
        """Kills the candidate of a request in work, which then answers `cancelled`; one that has not begun is let go.

        False: it is not here.
        """
        return self._seats.call_back(request_id) or self._evaluator.cancel(request_id)

    def stats(self) -> WorkerStats:
        """Counts and process ids now. Does not wait."""
        self._note_judge()
        return WorkerStats(
            name=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            gpu=self._gpu,
            verdicts=self._verdicts,
            restarts=max(0, len(self._judges) - 1),
            busy=self._busy,
            pids=self._evaluator.pids(),
            quarantine=self._quarantine,
        )

    def site(self) -> Site:
        """The machine that this worker is on."""
        return site()

    def gpu_use(self) -> GpuUse:
        """Who uses how much of the GPUs of this machine, as far as its driver says."""
        own = gpu_node(self._gpu) if self._gpu is not None else None
        return GpuUse(node=site().node, host=socket.gethostname(), own=own.name if own else None, used=memory_in_use())

    def stop(self) -> None:
        """Ends judge, zygotes and all they started, and waits. Requests in work get an infra reply."""
        self._stopped = True
        self._evaluator.stop()

    def _count(self, busy: int = 0, verdicts: int = 0) -> None:
        with self._lock:
            self._busy += busy
            self._verdicts += verdicts

    def _note_judge(self) -> None:
        judge = self._evaluator.pids().get("judge")
        if judge is not None:
            self._judges.add(judge)

    def _where(self) -> str:
        gpu = f" (GPU {self._gpu})" if self._gpu is not None else ""
        return f"{self._name} on {socket.gethostname()}{gpu}"

    def _infra(self, request: BenchRequest, what: str, **more: Any) -> str:
        return Reply(request_id=request.request_id, infra=what, **more).model_dump_json()


def assigned_gpu() -> str:
    """The GPU of this process: the one Ray assigned, else the first in CUDA_VISIBLE_DEVICES, else "0"."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ids = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        if ids:
            return str(ids[0])
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def one_line(error: BaseException) -> str:
    """The last line that says something; Ray and torch put whole tracebacks into str(error)."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else "no message"
    return text if isinstance(error, InfraError) else f"{type(error).__name__}: {text}"
