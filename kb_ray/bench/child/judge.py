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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kb_ray.bench import sandbox
from kb_ray.bench.child.evaluation import Evaluation
from kb_ray.bench.child.exclusive import Slot
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Channel, Frame, FrameError, Kind
from kb_ray.bench.child.machine import Machine
from kb_ray.bench.child.references import References
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.sweep import kill_group
from kb_ray.errors import InfraError

log = logging.getLogger("kb_ray.judge")


class Judge:
    """Serves one host. `concurrency` evaluations run at once; timing is alone on the device."""

    def __init__(self, host: Channel, candidates: Zygote, references: Zygote, cuda: bool, concurrency: int) -> None:
        self.host, self.candidates, self.cuda = host, candidates, cuda
        self.references = References(references, cuda)
        self.slot, self.machine = Slot(), Machine(cuda)
        self.threads = ThreadPoolExecutor(concurrency, thread_name_prefix="evaluation")
        self._stop_lock = threading.Lock()

    def serve(self) -> None:
        self.host.send(Kind.READY, self.machine.describe().model_dump_json().encode())
        while True:
            try:
                frame = self.host.recv()
            except FrameError:
                self.end(0)
            self.threads.submit(self._evaluate, frame)

    def _evaluate(self, frame: Frame) -> None:
        request = BenchRequest.model_validate_json(frame.payload)
        try:
            run = Evaluation(request, self.candidates, self.references, self.slot, self.machine)
            answer = {"request_id": request.request_id, "verdict": run.run().model_dump_json()}
        except InfraError as error:
            answer = {"request_id": request.request_id, "infra": str(error)}
        except Exception as error:
            # A fault of the judge itself must not look like the candidate's, nor end the other evaluations.
            log.exception("evaluation %s failed", request.request_id)
            answer = {
                "request_id": request.request_id,
                "infra": f"judge: {type(error).__name__}: {error}"[:500],
            }
        try:
            self.host.send(Kind.VERDICT, json.dumps(answer).encode())
        except FrameError:
            self.end(0)
        if not self.candidates.alive or not self.references.zygote.alive:
            self.end(3)

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
    candidates = Zygote(Channel.from_fd(candidates_fd), cuda, run_dir / "candidates", template)
    references = Zygote(Channel.from_fd(references_fd), cuda, run_dir / "references", template)
    Judge(Channel.from_fd(host_fd), candidates, references, cuda, concurrency).serve()
