"""Runs the trusted processes of one device from a plain Python process: a judge and two zygotes.

`Evaluator` starts them, hands out requests, and matches verdicts to requests by id. Knows no torch, no
Ray and no policy of retries: when a process of its own dies, whatever was under way raises InfraError
and the next request starts fresh processes. Children are started from one thread that lives as long as the
evaluator, since the kernel's parent-death signal is tied to the thread that started them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from kb_ray.bench.child.frames import Channel, FrameError, Kind
from kb_ray.bench.child_environment import environment_of
from kb_ray.bench.lifetime import VERDICTS, Lifetime
from kb_ray.bench.package_path import package_path
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest, judged
from kb_ray.bench.static import check_static
from kb_ray.bench.sweep import claim, release
from kb_ray.errors import InfraError
from kb_ray.records import Environment, Evidence, Stage, Verdict

START_TIMEOUT_S = 180.0
Fault = Literal["once", "always"]
_BOOT = "import sys, json; c = json.loads(sys.argv[1]); sys.path[:0] = c['path']; "

log = logging.getLogger("kb_ray.bench")


class Quarantined(InfraError):
    """The device is not to be trusted until its processes have been started anew."""


class GivenUp(InfraError):
    """`cancel` was called for this request: there is no verdict and nobody to give it to."""


_Jobs = queue.Queue[Callable[[], None] | None]


class _Call:
    """One request under way."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.verdict: Verdict | None = None
        self.error: InfraError | None = None


class Evaluator:
    """Verdicts on one device. `evaluate` is blocking and thread-safe; `concurrency` run at once.

    `bounds`: what a candidate may use with all that it starts, by the names of `watchdog.Bounds`; None: the usual.
    `lifetime`: verdicts after which the processes are replaced by fresh ones.
    `fault`, for tests: the device fails its first check after a suspicious verdict and passes again after a
    restart ("once"), or does not ("always").
    """

    def __init__(
        self,
        device: Literal["cpu", "cuda"] = "cpu",
        gpu: str | None = None,
        concurrency: int = 2,
        name: str = "local",
        bounds: Mapping[str, int] | None = None,
        fault: Fault | None = None,
        lifetime: int = VERDICTS,
    ) -> None:
        self.device, self.gpu, self.concurrency, self.name = device, gpu, concurrency, name
        self._bounds, self._fault, self._started = bounds, fault, False
        self.run_dir: Path | None = None
        self.environment = Environment(device=device)
        self._jobs: _Jobs = queue.Queue()
        self._keeper: threading.Thread | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._channel: Channel | None = None
        self._calls: dict[str, _Call] = {}
        self._starting = threading.Lock()
        self._queueing = threading.Lock()
        self._lock = threading.Lock()
        self._lifetime = Lifetime(lifetime, lambda: self._on_keeper(self._shut))

    def start(self) -> None:
        """Start the processes and wait until they can serve; InfraError if they cannot."""
        with self._starting:
            if self._channel is not None:
                return
            if self._keeper is None:
                # Of its own: what an earlier keeper left unread is not for this one.
                self._jobs = queue.Queue()
                self._keeper = threading.Thread(target=_keep, args=(self._jobs,), name="kb-keeper", daemon=True)
                self._keeper.start()
            self._on_keeper(self._launch)

    def evaluate(self, request: BenchRequest) -> Verdict:
        """The verdict of one candidate; InfraError when a process of ours died meanwhile, GivenUp after `cancel`,
        Quarantined when the device is not to be trusted: `stop` and `start` then, which fails where it still is not.

        What the source alone decides is decided here, before any process is touched.
        """
        started = time.monotonic()
        finding = None if request.inspect else check_static(request.kernel_code)
        if finding is not None:
            return Verdict.of(
                finding.status, Stage.STATIC, error=finding.error, env=self.environment,
                verifier_version=VERIFIER_VERSION, judged=judged(request.task, request.kernel_code),
                tests_total=request.settings.n_correctness,
                evidence=Evidence(kernel_launches=0), trusted=self.device == "cuda",
                seconds={"total": round(time.monotonic() - started, 6)},
            )  # fmt: skip
        with self._lifetime.one():
            return self._judged(request)

    def _judged(self, request: BenchRequest) -> Verdict:
        self.start()
        call = _Call()
        with self._lock:
            channel = self._channel
            if channel is None:
                raise InfraError("the judge is gone")
            if request.request_id in self._calls:
                raise ValueError(f"request id {request.request_id} is already under way")
            self._calls[request.request_id] = call
        try:
            channel.send(Kind.EVALUATE, request.model_dump_json().encode())
        except FrameError as error:
            self._fail_all(channel, f"the judge is gone ({error})")
        call.done.wait()
        if call.verdict is None:
            raise call.error or InfraError("the judge gave no reason")
        return call.verdict

    def cancel(self, request_id: str) -> bool:
        """Kill the candidate of a request under way: its `evaluate` raises GivenUp. False: it is not, or not yet."""
        with self._lock:
            channel = self._channel if request_id in self._calls else None
        if channel is None:
            return False
        with contextlib.suppress(FrameError):
            channel.send(Kind.CANCEL, request_id.encode())
        return True

    def pids(self) -> dict[str, int]:
        """Process ids by role, of those that run."""
        return {role: p.pid for role, p in self._processes.items() if p.poll() is None}

    def stop(self) -> None:
        """End everything this evaluator started. It may be started again."""
        with self._starting:
            with self._queueing:
                keeper, self._keeper = self._keeper, None
                if keeper is None:
                    return
                self._jobs.put(self._shut)
                self._jobs.put(None)
            # A start waits for it: two keepers at once would take each other's processes.
            keeper.join(timeout=30)

    def _on_keeper(self, job: Callable[[], None]) -> None:
        """Done by the thread that starts processes; nothing where `stop` came first, which has ended them all."""
        failure: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                job()
            except BaseException as error:
                failure.append(error)
            finally:
                done.set()

        with self._queueing:
            # Behind what `stop` queues nobody reads.
            if self._keeper is None:
                return
            self._jobs.put(run)
        done.wait()
        if failure:
            raise failure[0]

    def _launch(self) -> None:
        self._clear()
        self.run_dir = claim(self.name)
        ours, judge_end = socket.socketpair()
        pairs = {role: socket.socketpair() for role in ("candidates", "references")}
        try:
            for role, (_, theirs) in pairs.items():
                self._processes[role] = self._spawn(
                    f"from kb_ray.bench.child.zygote import main; "
                    f"main({theirs.fileno()}, c['parent'], c['device'] == 'cuda', c['node'])",
                    [theirs.fileno()], thin=True,
                )  # fmt: skip
            fds = [judge_end.fileno(), pairs["candidates"][0].fileno(), pairs["references"][0].fileno()]
            self._processes["judge"] = self._spawn(
                f"from kb_ray.bench.child.judge import main; main({fds[0]}, {fds[1]}, {fds[2]}, c['parent'], c)",
                fds, thin=False,
            )  # fmt: skip
        finally:
            for sock in (judge_end, *(s for pair in pairs.values() for s in pair)):
                sock.close()
        channel = Channel(ours)
        try:
            frame = channel.recv(timeout_s=START_TIMEOUT_S)
        except FrameError as error:
            codes = {role: p.poll() for role, p in self._processes.items()}
            self._shut()
            raise InfraError(f"the judge did not start ({error}; exit codes {codes})") from error
        if frame.kind == Kind.UNFIT:
            self._shut()
            raise Quarantined(frame.payload.decode())
        self._started = True
        self.environment = Environment.model_validate_json(frame.payload)
        with self._lock:
            self._channel = channel
        threading.Thread(target=self._read, args=(channel,), name="kb-verdicts", daemon=True).start()

    def _spawn(self, code: str, fds: list[int], thin: bool) -> subprocess.Popen[bytes]:
        """A fresh interpreter with a scrubbed environment."""
        environment, node = environment_of(self.device, self.gpu, self.run_dir, thin)
        fault = "later" if self._fault and not self._started else "start" if self._fault == "always" else None
        config = {
            "path": package_path(), "parent": os.getpid(), "device": self.device, "concurrency": self.concurrency,
            "run_dir": str(self.run_dir), "bounds": self._bounds and dict(self._bounds), "fault": fault,
            "node": node and node.path,
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT + code, json.dumps(config)],
            env=environment, pass_fds=fds, stdin=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip

    def _read(self, channel: Channel) -> None:
        """Match answers to requests until the judge ends, then fail what is left."""
        while True:
            try:
                frame = channel.recv()
            except FrameError as error:
                self._fail_all(channel, f"the judge ended in mid-verdict ({error})")
                return
            answer = json.loads(frame.payload)
            call = self._calls.pop(answer["request_id"])
            if "verdict" in answer:
                call.verdict = Verdict.model_validate_json(answer["verdict"])
            elif "cancelled" in answer:
                call.error = GivenUp(answer["cancelled"])
            elif "quarantine" in answer:
                call.error = Quarantined(answer["quarantine"])
            else:
                call.error = InfraError(answer["infra"])
            call.done.set()

    def _fail_all(self, channel: Channel, why: str) -> None:
        with self._lock:
            if self._channel is not channel:
                return
            self._channel = None
            calls, self._calls = self._calls, {}
        for call in calls.values():
            call.error = InfraError(why)
            call.done.set()

    def _shut(self) -> None:
        with self._lock:
            channel, self._channel = self._channel, None
            calls, self._calls = self._calls, {}
        for call in calls.values():
            call.error = InfraError("the evaluator was stopped")
            call.done.set()
        with contextlib.closing(channel) if channel is not None else contextlib.nullcontext():
            self._clear()

    def _clear(self) -> None:
        """End our processes, then whatever they had started."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes = {}
        # First: whatever comes of giving it up, the next start claims one of its own.
        run_dir, self.run_dir = self.run_dir, None
        if run_dir is not None:
            release(run_dir)


def _keep(jobs: _Jobs) -> None:
    """The thread that starts processes: it must live as long as they do."""
    while (job := jobs.get()) is not None:
        job()
