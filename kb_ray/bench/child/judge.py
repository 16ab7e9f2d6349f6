"""The trusted process of one device: takes requests from its host, gives verdicts, owns all that decides them.

Seeds, inputs, expected outputs, comparison and clock live here; candidate and reference code never do.
It ends when its host or a zygote ends: whatever was under way is then nobody's verdict. Launched by
`bench.host`, one per device.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import torch

from kb_ray.bench import sandbox
from kb_ray.bench.child import cgroup
from kb_ray.bench.child.allowance import usual
from kb_ray.bench.child.cancelling import Cancellation, Cancelled
from kb_ray.bench.child.card import Card
from kb_ray.bench.child.evaluation import Evaluation
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Channel, FrameError, Kind
from kb_ray.bench.child.health import SUSPICIOUS, Check, Health, Memory, canary_passes, first_failure, xid_reason
from kb_ray.bench.child.machine import Machine
from kb_ray.bench.child.references import References
from kb_ray.bench.child.watchdog import Bounds
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.sweep import kill_group
from kb_ray.errors import InfraError

FREE_SHARE = 0.92
"""Share of the memory that is free at the start that evaluations may use."""

log = logging.getLogger("kb_ray.judge")


class Judge:
    """Serves one host. `concurrency` evaluations run at once; timing is alone on the device."""

    def __init__(
        self, host: Channel, candidates: Zygote, references: Zygote, cuda: bool, concurrency: int, fault: str | None
    ) -> None:
        self.host, self.candidates, self.cuda = host, candidates, cuda
        self.references = References(references, cuda)
        self.machine = Machine(cuda)
        memory = int(FREE_SHARE * torch.cuda.mem_get_info()[0]) if cuda else None
        self.card = Card(self.machine, cuda, memory)
        self.threads = ThreadPoolExecutor(concurrency, thread_name_prefix="evaluation")
        self._stop_lock = threading.Lock()
        self._fault = fault
        self._running = 0
        self._count = threading.Lock()
        self._wanted: dict[str, Cancellation] = {}

    def serve(self) -> None:
        unfit = first_failure([self._canary, *self._faults("start")])
        if unfit is not None:
            self.host.send(Kind.UNFIT, unfit.encode())
            self.end(4)
        self.health = Health([self._canary, self._killed, self._memory_check(), *self._faults("later")])
        self.machine.watch_xids(self._xid)
        self.host.send(Kind.READY, self.machine.describe().model_dump_json().encode())
        while True:
            try:
                frame = self.host.recv()
            except FrameError:
                self.end(0)
            if frame.kind == Kind.CANCEL:
                self._cancel(frame.payload.decode())
                continue
            request = BenchRequest.model_validate_json(frame.payload)
            # Known before it has a thread: what waits for one can be given up too.
            self._wanted[request.request_id] = cancellation = Cancellation()
            self.threads.submit(self._evaluate, request, cancellation)

    def _cancel(self, request_id: str) -> None:
        """Kill the candidate of a request. One that has its verdict meanwhile is unknown here, and stays as it is."""
        cancellation = self._wanted.get(request_id)
        if cancellation is not None:
            cancellation.cancel()

    def _evaluate(self, request: BenchRequest, cancellation: Cancellation) -> None:
        with self._count:
            self._running += 1
        answer, suspicious = self._answer(request, cancellation)
        del self._wanted[request.request_id]
        with self._count:
            self._running -= 1
        unfit = self.health.admit(suspicious and (self.cuda or self._fault is not None))
        if unfit is not None:
            answer = {"quarantine": unfit}
        try:
            self.host.send(Kind.VERDICT, json.dumps({"request_id": request.request_id} | answer).encode())
        except FrameError:
            self.end(0)
        if not self.candidates.alive or not self.references.zygote.alive:
            self.end(3)

    def _answer(self, request: BenchRequest, cancellation: Cancellation) -> tuple[dict[str, str], bool]:
        """What is said to the host, and whether the device should be looked at because of it."""
        try:
            cancellation.check()
            run = Evaluation(request, self.candidates, self.references, self.card, cancellation)
            verdict = run.run()
            answer, suspicious = {"verdict": verdict.model_dump_json()}, verdict.status in SUSPICIOUS
        except (InfraError, Cancelled) as error:
            answer, suspicious = {"infra": str(error)}, False
        except Exception as error:
            # A fault of the judge itself must not look like the candidate's, nor end the other evaluations.
            log.exception("evaluation %s failed", request.request_id)
            answer, suspicious = {"infra": f"judge: {type(error).__name__}: {error}"[:500]}, True
        if cancellation.cancelled:
            # Whatever it came to: a candidate that is killed here looks like one that crashed.
            return {"cancelled": "its caller gave it up"}, False
        return answer, suspicious

    def _canary(self) -> str | None:
        return canary_passes(self.candidates, self.card.slot.shared)

    def _killed(self) -> str | None:
        """Whether some killed process is still there, as one that hangs in the driver is."""
        left = sorted({*self.candidates.left, *self.references.zygote.left})
        return f"processes that were killed did not end (groups {left})" if left else None

    def _memory_check(self) -> Check:
        own: Callable[[], int | None] = torch.cuda.memory_reserved if self.cuda else lambda: 0
        if self.machine.tells_whose():
            own = self.machine.held_bytes
        memory = Memory(self.machine.used_bytes, own, idle=lambda: self._running == 0)
        return lambda: memory.returned(self.references.process.retire)

    def _xid(self, xid: int) -> None:
        reason = xid_reason(xid)
        if reason is not None:
            self.health.report(reason)

    def _faults(self, moment: str) -> list[Check]:
        """For tests: a check that finds something, at the start or after the first suspicious verdict."""
        return [lambda: "a fault made for a test"] if self._fault == moment else []

    def end(self, code: int) -> None:
        """Exit, candidates first: their groups die here, whatever our host does next."""
        with self._stop_lock:
            for zygote in (self.candidates, self.references.zygote):
                for record in (zygote.folder / "groups").iterdir():
                    kill_group(int(record.name))
            os._exit(code)


def main(host_fd: int, candidates_fd: int, references_fd: int, parent: int, config: dict[str, object]) -> None:
    sandbox.die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="judge: %(levelname)s %(message)s")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cuda = config["device"] == "cuda"
    if not cuda:
        sandbox.hide_memory()
    run_dir, concurrency = Path(str(config["run_dir"])), int(str(config["concurrency"]))
    template = None
    if cuda:
        from kb_ray.bench.child.warm import warm_cuda

        template = warm_cuda(run_dir)
    cgroups = cgroup.find()
    given = Bounds(**config["bounds"]) if isinstance(config["bounds"], dict) else None

    def zygote(role: Literal["candidates", "references"], fd: int) -> Zygote:
        bounds = given or usual("cuda" if cuda else "cpu", role, concurrency)
        return Zygote(Channel.from_fd(fd), cuda, run_dir / role, template, cgroups, bounds)

    candidates, references = zygote("candidates", candidates_fd), zygote("references", references_fd)
    fault = str(config["fault"]) if config["fault"] else None
    Judge(Channel.from_fd(host_fd), candidates, references, cuda, concurrency, fault).serve()
