"""Runs many episodes at once: wires the state machine to a model, a pool of verifiers and a trace sink.

Holds no policy of its own: what follows an answer or a verdict is refine.py's to say, what is tried again
after an earlier start is resume's. Episodes wait for the model or for the pool, never for each other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from kb_ray import logs
from kb_ray.asking import Asking
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.config import RunConfig
from kb_ray.errors import InfraError
from kb_ray.model.completer import Completer
from kb_ray.prompts.budget import Messages
from kb_ray.prompts.opening import PromptSetting, opening_messages
from kb_ray.records import REDONE_ON_RESUME, Episode, Retrieved, StopReason, Task, Verdict
from kb_ray.refine import (
    Ask,
    Evaluate,
    Event,
    Finish,
    InfraFailed,
    Judged,
    Policy,
    State,
    start,
    step,
    to_episode,
)
from kb_ray.tally import Tally
from kb_ray.traces.run import episode_id
from kb_ray.watching import lines

_SLACK = 2
"""Episodes in flight beyond the places of model and pool, so that neither waits for a new one to begin."""
_GRACE_S = 120.0
"""How long a budget stop lets answers and verdicts on their way arrive."""
_TOO_MANY_FAILURES = 20
_FAILING_S = 60.0
"""A run stops when so many episodes in a row failed and none succeeded for so long."""


class Pool(Protocol):
    """What gives verdicts: `bench.pool.BenchPool`. `lost` says why none will come any more, or is None."""

    @property
    def lost(self) -> str | None: ...

    async def evaluate(self, request: BenchRequest) -> Verdict:
        """The verdict; InfraError after the pool's own retries."""
        ...


class Sink(Protocol):
    """What keeps finished episodes: `traces.sink.TraceSink`."""

    def add(self, episode: Episode) -> None:
        """Takes the episode; blocks while too many wait to be written. StoreError when it gave up."""
        ...


@dataclass(frozen=True)
class Work:
    """One episode to run."""

    task: Task
    sample: int
    attempt: int


@dataclass(frozen=True)
class Ending:
    """Why the driver came back."""

    kind: str
    """`done`, `budget`, `signal` or `failing`."""
    message: str = ""
    exit_code: int = 0
    hurried: bool = False
    """Whether only seconds are left: a signal was received, or the cluster is gone."""


class Drive:
    """One start of a run. `run` once; `stop` may be called from a signal handler of the same loop.

    `capacity` tells how many candidates the pool verifies at once, now: workers come and go. `admits` says
    whether a task is to be run at all; None runs every one. `opening` gives a task's first messages, and what examples
    are in them; None fills in `prompt` without any.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        run_id: str,
        fingerprint: str,
        prompt: PromptSetting,
        bench: BenchSettings,
        completer: Completer,
        pool: Pool,
        capacity: Callable[[], int],
        sink: Sink,
        tally: Tally,
        admits: Callable[[Task], Awaitable[bool]] | None = None,
        opening: Callable[[Task], tuple[Messages, Retrieved | None]] | None = None,
    ) -> None:
        self._config, self._run_id, self._fingerprint = config, run_id, fingerprint
        self._opening = opening or (lambda task: (opening_messages(task, prompt), None))
        self._bench, self._looking_up = bench, asyncio.Lock()
        self._asking, self._pool, self._capacity = Asking(config, completer, tally), pool, capacity
        self._sink, self._tally, self._admits = sink, tally, admits
        self._policy = Policy(
            max_turns=config.turns, target_speedup=config.target_speedup, n_correctness=config.n_correctness
        )
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._ending: Ending | None = None
        self._grace_is_over = False
        self._failure: BaseException | None = None
        self._failures_in_a_row, self._last_success = 0, time.monotonic()
        self._unsolved: list[Work] = []

    async def run(self, work: Iterable[Work], again: Iterable[Work] = ()) -> Ending:
        """Runs `work`, then with --retry-failed `again` and what stayed unsolved, each once more.

        Raises StoreError when traces cannot be kept any more. Episodes that a stop interrupts are dropped:
        the next start runs them.
        """
        try:
            await self._run_all(iter(work))
            if self._config.retry_failed and self._ending is None and self._failure is None:
                retries = [*again, *(Work(item.task, item.sample, 2) for item in self._unsolved)]
                self._tally.retries = len(retries)
                await self._run_all(iter(retries))
            await self._settle(_GRACE_S)
        finally:
            await self._drop_rest()
        if self._failure is not None:
            raise self._failure
        return self._ending or self._came_to_its_end()

    def _came_to_its_end(self) -> Ending:
        tally = self._tally
        if tally.finished and tally.to_redo == tally.finished:
            return Ending("failing", f"every episode failed, the last with: {tally.last_failure}", exit_code=1)
        # Where no question fitted into the model's window nothing was done, nor would it be by the same command again.
        full = tally.stop_reasons[StopReason.CONTEXT.value]
        return Ending("done", exit_code=1 if full and full == tally.finished and not tally.statuses else 0)

    def stop(self, ending: Ending) -> None:
        """Begins nothing new from now on. The first reason counts, but a signal's takes its place. What is no budget
        cuts a budget's grace; only what is hurried leaves but seconds to keep what is finished."""
        first, cuts = self._ending, ending.kind != "budget" and not self._grace_is_over
        if first is None or ending.kind == "signal":
            self._ending = ending
        elif cuts or (ending.hurried and not first.hurried):
            logs.warn(ending.message, "stopping")
            self._ending = replace(first, hurried=first.hurried or ending.hurried)
        self._grace_is_over |= ending.kind != "budget"
        self._changed.set()

    async def _run_all(self, work: Iterator[Work]) -> None:
        """Keeps places filled until `work` is done or the run is to stop."""
        pending = next(work, None)
        while self._ending is None and self._failure is None and (pending or self._running):
            while pending is not None and len(self._running) < self._in_flight_limit():
                self._begin(pending)
                pending = next(work, None)
            await self._wait(1.0)
            self._check_budgets()

    def _in_flight_limit(self) -> int:
        return self._config.batch_size + self._capacity() + _SLACK

    def _begin(self, work: Work) -> None:
        episode = asyncio.create_task(self._told(work))
        self._running.add(episode)
        episode.add_done_callback(self._ended)

    def _ended(self, episode: asyncio.Task[None]) -> None:
        self._running.discard(episode)
        self._changed.set()
        if not episode.cancelled() and episode.exception() is not None:
            self._failure = self._failure or episode.exception()

    async def _wait(self, timeout: float) -> None:
        """Until an episode ends or something changed, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _settle(self, grace_s: float) -> None:
        """After a budget stop, lets what is on its way arrive; nothing new is asked meanwhile."""
        until = time.monotonic() + grace_s
        if self._running and self._ending is not None and self._ending.kind == "budget":
            logs.warn(f"{self._ending.message}: waiting up to {grace_s:.0f} s for what is under way", "stopping")
        while self._running and self._failure is None and time.monotonic() < until:
            if self._ending is None or self._grace_is_over:
                return
            await self._wait(1.0)

    async def _drop_rest(self) -> None:
        for episode in self._running:
            episode.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _check_budgets(self) -> None:
        config, tally = self._config, self._tally
        hours = (time.monotonic() - tally.started) / 3600
        if config.max_hours is not None and hours >= config.max_hours:
            self.stop(Ending("budget", f"--max-hours {config.max_hours:g} reached"))
        if config.max_tokens_total is not None and tally.tokens >= config.max_tokens_total:
            self.stop(Ending("budget", f"--max-tokens-total {config.max_tokens_total} reached"))
        if config.max_gpu_hours is not None and tally.gpu_s / 3600 >= config.max_gpu_hours:
            self.stop(Ending("budget", f"--max-gpu-hours {config.max_gpu_hours:g} reached"))

    async def _told(self, work: Work) -> None:
        with logs.about(self._id(work)):
            await self._episode(work)

    async def _episode(self, work: Work) -> None:
        if self._admits is not None and not await self._admits(work.task):
            self._tally.total -= 1
            return
        # With an index this embeds the program: not in the loop, and one at a time, as the sink needs threads too.
        async with self._looking_up:
            opening, retrieved = await asyncio.to_thread(self._opening, work.task)
        state, action = start(work.task, opening, self._policy)
        event: Event
        while not isinstance(action, Finish):
            if isinstance(action, Ask):
                answer = await self._asking.ask(
                    state, sample=work.sample, attempt=work.attempt, stopping=lambda: self._ending is not None
                )
                if answer is None:
                    return
                event = answer
            else:
                event = await self._evaluate(work, state, action)
            turns = len(state.turns)
            state, action = step(state, event)
            if len(state.turns) > turns:
                self._tally.turned(state.turns[-1])
                lines.turned(work.task.task_id, state.turns[-1])
        episode = to_episode(
            state,
            action,
            episode_id=self._id(work), run_id=self._run_id, sample=work.sample, attempt=work.attempt,
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        ).model_copy(update={"retrieved": retrieved})  # fmt: skip
        # The sink blocks while a store that is down lets episodes pile up; the loop must not.
        await asyncio.to_thread(self._sink.add, episode)
        self._tally.ended(episode)
        lines.ended(episode)
        self._after(work, episode)

    def _after(self, work: Work, episode: Episode) -> None:
        if work.attempt == 1 and not any(turn.verdict.correct for turn in episode.turns):
            self._unsolved.append(work)
        now = time.monotonic()
        if episode.stop_reason not in REDONE_ON_RESUME:
            self._failures_in_a_row, self._last_success = 0, now
            return
        self._failures_in_a_row += 1
        long = self._failures_in_a_row >= _TOO_MANY_FAILURES and now - self._last_success >= _FAILING_S
        message = f"{self._failures_in_a_row} episodes in a row failed, the last with: {episode.error}"
        if long or self._pool.lost:
            self.stop(Ending("failing", self._pool.lost or message, exit_code=1))

    async def _evaluate(self, work: Work, state: State, action: Evaluate) -> Event:
        name = f"{self._id(work)}-{len(state.turns)}"
        request = BenchRequest(request_id=name, task=work.task, kernel_code=action.code, settings=self._bench)
        self._tally.waiting_on_bench += 1
        handed = time.monotonic()
        try:
            verdict = await self._pool.evaluate(request)
        except InfraError as error:
            return InfraFailed(message=str(error))
        finally:
            self._tally.waiting_on_bench -= 1
        return Judged(verdict=verdict, bench_s=time.monotonic() - handed)

    def _id(self, work: Work) -> str:
        return episode_id(work.task.task_id, work.sample, work.attempt, self._fingerprint)
