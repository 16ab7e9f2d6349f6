"""A run of SFT: data, learner, steps, and a checkpoint now and then; started again it goes on where it was.

Wires what others know: which conversations (`dialogues`), in which order (`learn.sft`), how to learn (`learn.learner`),
where things are kept (`keeping`, `tracking`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kb_ray import cluster
from kb_ray.errors import ConfigError, TaskError
from kb_ray.exiting import ctrl_c_at_once
from kb_ray.exporting.options import ExportOptions
from kb_ray.learn.chat import ChatTokens
from kb_ray.learn.objective import Objective
from kb_ray.learn.samples import Made
from kb_ray.learn.sft import portions, total_steps
from kb_ray.learn.stepping import NotTaken, StepReport, Trainee
from kb_ray.tasks import entries
from kb_ray.traces.lease import held
from kb_ray.traces.outages import outlast
from kb_ray.traces.reading import Survey, survey
from kb_ray.traces.store import Store, open_store
from kb_ray.training import keeping
from kb_ray.training.dialogues import Clean, OfStore, account, as_samples, require
from kb_ray.training.learners import learner_of
from kb_ray.training.pairs import Pairs, names_pairs
from kb_ray.training.settings import SftSettings
from kb_ray.training.tracking import Tracker, board_folder

OBJECTIVE = Objective(kind="likelihood", averaging="token")
Say = Callable[[str], None]
MayWrite = Callable[[], None]
"""Raises where another start of the run writes now, or may."""
Sources = list[Pairs | OfStore]


def run(settings: SftSettings, say: Say, device: str | None = None) -> int:
    """The whole run; steps taken in all. ConfigError for what cannot be used, NotTaken where a step fails: then the
    last good one is kept."""
    if not settings.data:
        raise ConfigError("--data: name what to learn from: a trace store, kernelbook or file:PATH")
    store = open_store(settings.output)
    store.check_writable()
    sources, clean = _sources(settings, say)
    # The whole run of two stages has an event loop, which this holds up.
    with ctrl_c_at_once(), held(store, "sft", say) as lease, _together(settings):
        learner = learner_of(settings, device)
        try:
            return _run(settings, store, learner, sources, clean, lease.check, say)
        finally:
            learner.close()


@contextmanager
def _together(settings: SftSettings) -> Iterator[None]:
    """Ray, where several processes are to learn."""
    if settings.train_workers == 1:
        yield
        return
    cluster.connect("sft")
    try:
        yield
    finally:
        cluster.disconnect()


def _run(
    settings: SftSettings, store: Store, learner: Trainee, sources: Sources, clean: Clean, may_write: MayWrite,
    say: Say,
) -> int:  # fmt: skip
    dialogues = clean(itertools.chain.from_iterable(sources))
    made = as_samples(dialogues, ChatTokens(learner.tokenizer), settings.max_tokens, settings.samples)
    for source in sources:
        made.left_out.update(source.left_out)
    require(made, clean.refused, settings.data, settings.max_tokens)
    say(account(made, clean.refused, settings.samples))
    total = total_steps(len(made.samples), settings.rule())
    learner.settings = settings.learning(total)
    fingerprint = settings.fingerprint()
    found = keeping.resume(store, learner, fingerprint)
    if found is None and settings.start_from is not None:
        keeping.start_from(learner, settings.start_from)
    say(f"steps:    {total}" + (f", {learner.steps} of them taken already" if found else ""))
    for line in _warnings(settings, len(made.samples), found.progress.get("samples") if found else None):
        say(line)
    _learn(settings, store, learner, made, total, fingerprint, may_write, say)
    return learner.steps


def _learn(
    settings: SftSettings, store: Store, learner: Trainee, made: Made, total: int, fingerprint: str,
    may_write: MayWrite, say: Say,
) -> None:  # fmt: skip
    tracker = Tracker(store, board_folder(settings.tensorboard_enabled, store.uri), learner.steps)
    kept, progress = learner.steps, {"samples": len(made.samples), "steps": total}

    def lasting(write: Callable[[], object]) -> None:
        def written() -> None:
            may_write()
            write()

        outlast(written, store.uri, say)

    def keep() -> None:
        nonlocal kept
        if learner.steps > kept:
            lasting(lambda: keeping.save(store, learner, fingerprint, progress, settings.keep_checkpoints))
            kept = learner.steps

    try:
        for portion in portions(made.samples, settings.rule(), learner.steps):
            began = time.monotonic()
            try:
                report = learner.step(portion.samples, OBJECTIVE)
            except NotTaken:
                keep()
                raise
            told = _told(report, portion.epoch, time.monotonic() - began, learner.steps, total)
            lasting(partial(tracker.log, portion.step, told, {}))
            if learner.steps % settings.checkpoint_every == 0:
                keep()
                say(f"step {learner.steps} of {total}: loss {report.loss:.4f}")
        keep()
    finally:
        tracker.close()


def _warnings(settings: SftSettings, samples: int, before: int | None) -> Iterator[str]:
    """What is to be known of a run that can be done. `before`: samples of the start that it goes on from."""
    size = settings.step_size()
    if settings.train_workers > size:
        yield (
            f"workers:  {settings.train_workers - size} of {settings.train_workers} learn from nothing, as a step has "
            f"{size} conversations: with --per-device-batch-size 1 or more each has its own"
        )
    if before not in (None, samples):
        yield f"data:     {samples} samples now, {before} before: the steps that are left learn from those of now"


def _sources(settings: SftSettings, say: Say) -> tuple[Sources, Clean]:
    """What is learned from, opened but not read, and what keeps an evaluation's tasks out of it."""
    options = ExportOptions("sft", keep=settings.keep, conversation=settings.conversation, reasoning=settings.reasoning)
    sources: Sources = [
        Pairs(spec, settings.prompt_option) if names_pairs(spec) else OfStore(_surveyed(spec, settings, say), options)
        for spec in settings.data
    ]
    kept_out: list[tuple[str, str | None]] = []
    for entry in (entry for spec in settings.eval_tasks for entry in entries(spec, settings.kernelbench_root, {})):
        try:
            task = entry.make()
            kept_out.append((task.reference_code, task.entry_point))
        except TaskError as error:
            say(f"skipped: {entry.where}: {error}")
    return sources, Clean(kept_out)


def _surveyed(spec: str, settings: SftSettings, say: Say) -> Survey:
    found = survey(open_store(spec), skip_corrupt=settings.skip_corrupt)
    for file in found.damaged:
        say(f"left out: {file.key} ({file.reason})")
    return found


def _told(report: StepReport, epoch: float, seconds: float, steps: int, total: int) -> dict[str, float]:
    return {
        "Train/loss": report.loss,
        "Train/gradient_norm": report.gradient_norm,
        "Train/tokens": float(report.tokens),
        "Progress/LearningRate": report.learning_rate,
        "Progress/Epoch": epoch,
        "Progress/CompletionFraction": steps / total,
        "Timing/Train": seconds,
    }
