"""A run of best-of-N or GRPO: batches, checkpoints, every attempt kept as a trace; gone on with where it was stopped.

`train` is the loop, given who judges; `tasks_of` says on what. Connecting to Ray is the command's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from kb_ray.errors import ConfigError, TaskError
from kb_ray.learn import metrics
from kb_ray.learn.curriculum import LevelMix
from kb_ray.learn.grpo import Batch, Grpo, Progress
from kb_ray.learn.rollouts import Verify
from kb_ray.learn.stepping import NotTaken, Trainee
from kb_ray.records import Episode, Message, Retrieved, Task
from kb_ray.refine import to_episode
from kb_ray.tasks import entries
from kb_ray.traces.run import episode_id
from kb_ray.traces.store import Store, open_store
from kb_ray.training import keeping
from kb_ray.training.learners import learner_of, sampler_of
from kb_ray.training.openings import Openings
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.serving import Served
from kb_ray.training.tracking import Tracker

RlSettings = BestOfNSettings | GrpoSettings
Say = Callable[[str], None]
Opening = Callable[[Task], tuple[tuple[Message, ...], Retrieved | None]]
"""The first messages of a task, and which examples are in them."""


class Judges(NamedTuple):
    """Who judges, and where what was tried goes."""

    verify: Verify
    keep: Callable[[Episode], None]
    run_id: str
    may_write: Callable[[], None] = lambda: None
    """Raises where another start of the run writes now."""


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
    async with AsyncExitStack() as stack:
        newest = None
        if settings.vllm_url is not None or settings.adapters_path is not None:
            newest = (await stack.enter_async_context(Served(settings, learner, judges.run_id))).newest
        sampler = await newest() if newest else sampler_of(learner, judges.run_id, settings)
        if isinstance(opening_, Openings):
            opening_.within(sampler.window)
        loop = Grpo(
            settings.rule(), tasks, learner, sampler, judges.verify, settings.objective(),
            lambda task: opening_(task)[0], progress=progress, newest=newest,
        )  # fmt: skip
        stack.push_async_callback(loop.aclose)
        say(f"tasks:    {len(tasks)}; {settings.steps} batches, {progress.batch} of them over")
        tracker = Tracker(store, _board(settings, store), progress.batch)
        stack.callback(tracker.close)
        while loop.progress.batch < settings.steps:
            await _batch(settings, loop, learner, judges, opening_, tracker, fingerprint, store, say)
    return learner.steps


async def _batch(
    settings: RlSettings, loop: Grpo, learner: Trainee, judges: Judges, opening_: Opening, tracker: Tracker,
    fingerprint: str, store: Store, say: Say,
) -> None:  # fmt: skip
    number, before = loop.progress.batch, loop.progress
    try:
        batch = await loop.advance(last=number + 1 == settings.steps)
    except NotTaken:
        if learner.steps:
            judges.may_write()
            keeping.save(store, learner, fingerprint, before.model_dump(mode="json"), settings.keep_checkpoints)
        raise
    for episode in _episodes(batch, number, settings, judges.run_id, fingerprint):
        judges.keep(episode.model_copy(update={"retrieved": opening_(episode.task)[1]}))
    began, over = time.monotonic(), number + 1 == settings.steps
    if over or (number + 1) % settings.checkpoint_every == 0:
        judges.may_write()
        keeping.save(store, learner, fingerprint, loop.progress.model_dump(mode="json"), settings.keep_checkpoints)
    told = batch.metrics | {
        "Timing/SaveCheckpoint": time.monotonic() - began,
        "Progress/CompletionFraction": (number + 1) / settings.steps,
        "Progress/LearningRate": learner.learning_rate(),
    }
    if not settings.tensorboard_log_per_level:
        told = {name: value for name, value in told.items() if not name.startswith("PerLevel/")}
    shown = number % settings.tensorboard_log_histograms_every == 0
    tracker.log(number, told, metrics.histograms(batch.groups, batch.made) if shown else {})
    correct, cheats = (told.get(f"KernelQuality/{name}Rate", 0.0) for name in ("Correct", "Cheat"))
    say(
        f"batch {number + 1} of {settings.steps}: reward {told.get('Reward/Mean', float('nan')):.3f}, "
        f"correct {correct:.0%}, cheats {cheats:.0%}, {told['Timing/Total']:.1f} s"
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


def _episodes(batch: Batch, number: int, settings: RlSettings, run_id: str, fingerprint: str) -> list[Episode]:
    """What was tried, as traces: samples of a task count on from batch to batch."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = []
    for group in batch.groups:
        for one in group:
            sample = number * settings.group_size + one.sample
            identity = episode_id(one.state.task.task_id, sample, 1, fingerprint)
            found.append(
                to_episode(
                    one.state, one.finish, episode_id=identity, run_id=run_id, sample=sample, attempt=1, created_at=now
                )
            )
    return found


def _board(settings: RlSettings, store: Store) -> Path | None:
    local = not store.uri.startswith("s3://")
    return Path(store.uri) / "tensorboard" if settings.tensorboard_enabled and local else None
