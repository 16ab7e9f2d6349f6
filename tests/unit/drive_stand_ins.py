"""Stand-ins and real parts that driver tests share: a pool whose verdicts come when told, a model that is
watched, and one start of a run on a local store. Holds no test."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.config import RunConfig
from kb_ray.drive import Drive, Ending
from kb_ray.model.completer import Request
from kb_ray.model.scripted import ScriptedCompleter
from kb_ray.preflight import remaining
from kb_ray.prompts.opening import PromptSetting
from kb_ray.records import Completion, Episode, ErrorDetail, Stage, Status, Task, Verdict
from kb_ray.tally import Tally
from kb_ray.traces.resume import finished
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes

GOOD = "```python\nimport triton\n\n@triton.jit\ndef k():\n    pass\n\ndef triton_kernel_wrapper(x):\n    return x\n```"
BAD = GOOD.replace("return x", "return None")


def task(number: int) -> Task:
    return Task(
        task_id=f"folder/t{number}",
        source="folder",
        name=f"t{number}",
        reference_code="def reference_impl(x):\n    return x\n",
        style="function",
        entry_point="reference_impl",
    )


def verdict(request: BenchRequest) -> Verdict:
    if "return None" in request.kernel_code:
        error = ErrorDetail(category="CORRECTNESS ERROR", message="the output is not a tensor")
        return Verdict.of(Status.WRONG_STRUCTURE, Stage.FULL, trusted=True, error=error)
    return Verdict.of(Status.OK, Stage.FULL)


class StandInPool:
    """Judges by the text of the code; `before` may delay or fail a request."""

    def __init__(self, places: int = 2, before: Callable[[BenchRequest], Any] | None = None) -> None:
        self.places, self.before = places, before
        self.running = self.most = 0
        self.lost: str | None = None
        self.seen: list[str] = []
        self._gate = asyncio.Semaphore(places)

    async def evaluate(self, request: BenchRequest) -> Verdict:
        async with self._gate:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                self.seen.append(request.request_id)
                if self.before is not None:
                    await self.before(request)
                return verdict(request)
            finally:
                self.running -= 1


class WatchedModel(ScriptedCompleter):
    """The real scripted model, with a count of requests in flight and an optional delay."""

    def __init__(self, path: Path, delay_s: float = 0.0) -> None:
        super().__init__(ScriptedCompleter.from_file(str(path))._load)
        self.delay_s = delay_s
        self.running = self.most = 0
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.delay_s)
            return await super().complete(request)
        finally:
            self.running -= 1


def script(tmp_path: Path, *turns: str, tasks: str = "folder/*") -> Path:
    path = tmp_path / "script.jsonl"
    path.write_text(json.dumps({"task": tasks, "turns": list(turns)}) + "\n")
    return path


class Bench:
    """One start of a run on a local store."""

    def __init__(
        self, folder: Path, model: ScriptedCompleter, pool: StandInPool, *,
        sink: Any = None, fingerprint: str = "f", **config: Any,
    ) -> None:  # fmt: skip
        self.config = RunConfig(output=str(folder / "out"), save_interval=2, **config)
        self.store = open_store(self.config.output)
        self.sink = sink if sink is not None else TraceSink(self.store, self.config.save_interval)
        self.tally = Tally(total=0, earlier=0, started=time.monotonic())
        self.drive = Drive(
            self.config,
            run_id="run",
            fingerprint=fingerprint,
            prompt=PromptSetting(device="cpu"),
            bench=BenchSettings(),
            completer=model,
            pool=pool,
            capacity=lambda: pool.places,
            sink=self.sink,
            tally=self.tally,
        )

    async def run(self, count: int) -> Ending:
        """Runs what a plan of `count` tasks lacks in the store, and closes the sink."""
        work, again = remaining([(task(i), 0) for i in range(count)], finished(self.store), self.config.retry_failed)
        self.tally.total = count
        try:
            return await self.drive.run(work, again)
        finally:
            await asyncio.to_thread(self.sink.close, 10.0)

    def rows(self) -> list[Episode]:
        return list(episodes(self.store))


def assert_exactly_once(rows: Sequence[Episode], count: int) -> None:
    assert sorted(row.task.task_id for row in rows) == sorted(task(i).task_id for i in range(count))
