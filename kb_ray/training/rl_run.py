"""A run of best-of-N or GRPO: batches, checkpoints, every attempt kept as a trace; gone on with where it was stopped.

`train` is the loop, given who judges; `tasks_of` says on what. Connecting to Ray is the command's.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kb_ray.errors import ConfigError, TaskError
from kb_ray.learn import metrics
from kb_ray.learn.curriculum import LevelMix
from kb_ray.learn.grpo import Batch, Grpo, Progress
from kb_ray.learn.rollouts import Sampler, Verify, fits
from kb_ray.learn.stepping import NotTaken, Trainee, under_another_output
from kb_ray.records import Episode, Task
from kb_ray.tasks import entries
from kb_ray.traces.outages import in_thread, outlasting
from kb_ray.traces.store import Store, open_store
from kb_ray.training import keeping
from kb_ray.training.learners import learner_of, sampler_of
from kb_ray.training.openings import Openings
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.serving import Served
from kb_ray.training.tracking import Tracker, board_folder
from kb_ray.training.tries import Opening, Tries

RlSettings = BestOfNSettings | GrpoSettings
Say = Callable[[str], None]


class Judges(NamedTuple):
    """Who judges, and where what was tried goes."""

    verify: Verify
    keep: Callable[[Episode], None]
    run_id: str
    may_write: Callable[[], None] = lambda: None
    """Raises where another start of the run writes now, or may."""
    flush: Callable[[], None] = lambda: None
    """Returns once what was kept is safe."""


async def train(
    settings: RlSettings, tasks: Sequence[Task], judges: Judges, opening_: Opening, say: Say, device: str | None = None
) -> int:
    """All batches that are left; optimizer steps taken in all. NotTaken where a step fails: the last good one is kept
    then."""
    store = open_store(settings.output)
    store.check_writable()
    learner = learner_of(settings, device)
    try:
        return await _train(settings, tasks, judges, opening_, say, store, learner)
    finally:
        learner.close()


async def _train(
    settings: RlSettings, tasks: Sequence[Task], judges: Judges, opening_: Opening, say: Say, store: Store,
    learner: Trainee,
) -> int:  # fmt: skip
    fingerprint = settings.fingerprint()
    found = keeping.resume(store, learner, fingerprint)
    if found is None and settings.start_from is not None:
        keeping.start_from(learner, settings.start_from)
    progress = Progress.model_validate(found.progress) if found else Progress(mix=LevelMix.first(settings.levels()))
    tries = await asyncio.to_thread(
        Tries, store, judges.keep, opening_, run_id=judges.run_id, fingerprint=fingerprint,
        group_size=settings.group_size, batch=progress.batch,
    )  # fmt: skip
    # Steps after the checkpoint are taken anew, and to other weights: what each start makes has names of its own.
    start = secrets.token_hex(4)
    async with AsyncExitStack() as stack:
        newest = None
        if settings.vllm_url is not None or settings.adapters_path is not None:
            server = Served(settings, learner, judges.run_id, start, judges.may_write)
            published = (await stack.enter_async_context(server)).newest
            newest = partial(outlasting, published, settings.adapters_path or "", say)
        sampler = await newest() if newest else sampler_of(learner, f"{judges.run_id}-{start}", settings)
        if isinstance(opening_, Openings):
            opening_.within(sampler.window)
        _refuse_too_narrow(tasks, sampler, opening_, learner.steps)
        loop = Grpo(
            settings.rule(), tasks, learner, sampler, judges.verify, settings.objective(),
            lambda task: opening_(task)[0], progress=progress, newest=newest, tried=tries.tell,
        )  # fmt: skip
        stack.push_async_callback(loop.aclose)
        say(f"tasks:    {len(tasks)}; {settings.steps} batches, {progress.batch} of them over")
        tracker = Tracker(store, board_folder(settings.tensorboard_enabled, store.uri), progress.batch)
        stack.callback(tracker.close)
        batches = _Batches(settings, loop, learner, judges, tries, tracker, store, fingerprint, say)
        while loop.progress.batch < settings.steps:
            await batches.next()
    return learner.steps


@dataclass(frozen=True)
class _Batches:
    """One batch after the other, and what is written of each."""

    settings: RlSettings
    loop: Grpo
    learner: Trainee
    judges: Judges
    tries: Tries
    tracker: Tracker
    store: Store
    fingerprint: str
    say: Say

    async def next(self) -> None:
        """Take a batch. NotTaken where its step fails, with the step before kept.

        A checkpoint is written last: batches before it are never done again, so that their traces and numbers must
        be safe by then.
        """
        before = self.loop.progress
        number, over = before.batch, before.batch + 1 == self.settings.steps
        try:
            batch = await self.loop.advance(last=over)
        except NotTaken:
            if self.learner.steps:
                await self._save(before)
            raise
        saved = over or (number + 1) % self.settings.checkpoint_every == 0
        told = self._told(number, batch) | ({} if saved else {"Timing/SaveCheckpoint": 0.0})
        shown = number % self.settings.tensorboard_log_histograms_every == 0
        spreads = metrics.histograms(batch.groups, batch.made) if shown else {}
        await self._lasting(partial(self.tracker.log, number, told, spreads))
        if saved:
            began = time.monotonic()
            await self._save(self.loop.progress)
            seconds = {"Timing/SaveCheckpoint": time.monotonic() - began}
            await self._lasting(partial(self.tracker.add, number, seconds))
        self.say(_line(number, self.settings.steps, told))

    async def _save(self, progress: Progress) -> None:
        await asyncio.to_thread(self.judges.flush)
        known, keep = progress.model_dump(mode="json"), self.settings.keep_checkpoints
        await self._lasting(partial(keeping.save, self.store, self.learner, self.fingerprint, known, keep))

    async def _lasting(self, write: Callable[[], object]) -> None:
        """Writes to the store, whatever it takes; not in the event loop, which a Ctrl-C must reach."""

        def written() -> None:
            self.judges.may_write()
            write()

        await outlasting(lambda: in_thread(written), self.store.uri, self.say)

    def _told(self, number: int, batch: Batch) -> dict[str, float]:
        """The numbers of a batch, but for those of its checkpoint."""
        told = batch.metrics | {
            "Progress/CompletionFraction": (number + 1) / self.settings.steps,
            "Progress/LearningRate": self.learner.learning_rate(),
            "Progress/FirstSample": float(self.tries.first(number)),
        }
        if self.settings.tensorboard_log_per_level:
            return told
        return {name: value for name, value in told.items() if not name.startswith("PerLevel/")}


def _line(number: int, batches: int, told: dict[str, float]) -> str:
    correct, cheats = (told.get(f"KernelQuality/{name}Rate", 0.0) for name in ("Correct", "Cheat"))
    narrow = int(told["Rollouts/EndedByWindow"])
    return (
        f"batch {number + 1} of {batches}: reward {told.get('Reward/Mean', float('nan')):.3f}, "
        f"correct {correct:.0%}, cheats {cheats:.0%}, {told['Timing/Total']:.1f} s"
        + (f"; {narrow} tries ended by the model's window" if narrow else "")
    )


def _refuse_too_narrow(tasks: Sequence[Task], sampler: Sampler, opening_: Opening, steps: int) -> None:
    """ConfigError where the model's window has room for an answer beside no task's first prompt: no batch would hold
    anything to learn from."""
    shortest: int | None = None
    for task in tasks:
        tokens = len(sampler.prompt(opening_(task)[0]))
        if fits(tokens, sampler):
            return
        shortest = tokens if shortest is None else min(shortest, tokens)
    if shortest is None or sampler.window is None:
        return
    room = sampler.window - shortest
    raise ConfigError(
        f"--max-tokens: an answer of {sampler.sampling.max_tokens} tokens does not fit the model's window of "
        f"{sampler.window} beside any task's first prompt, the shortest of which has {shortest}: "
        + (f"lower it to {room} or less" if room > 0 else "train a model with a larger window, or on shorter tasks")
        + f", {under_another_output(steps)}"
    )


def tasks_of(settings: RlSettings, on_skip: Say) -> list[Task]:
    """The tasks named, each once; a malformed one is told and skipped. ConfigError where none is left."""
    levels = ",".join(map(str, settings.level))
    found: dict[str, Task] = {}
    for spec in settings.tasks or (f"kernelbench:{levels}",):
        for entry in entries(spec, settings.kernelbench_root, {}):
            try:
                task = entry.make()
            except TaskError as error:
                on_skip(f"skipped: {entry.where}: {error}")
            else:
                found.setdefault(task.task_id, task)
    if not found:
        raise ConfigError("--tasks: there is no task to train on")
    return list(found.values())
