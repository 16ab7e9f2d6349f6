"""A run of SFT: data, learner, steps, and a checkpoint now and then; started again it goes on where it was.

Wires what others know: which conversations (`dialogues`), in which order (`learn.sft`), how to learn (`learn.learner`),
where things are kept (`keeping`, `tracking`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kb_ray.errors import ConfigError
from kb_ray.exporting.options import ExportOptions
from kb_ray.learn.chat import ChatTokens
from kb_ray.learn.learner import Learner, NotFinite, StepReport
from kb_ray.learn.objective import Objective
from kb_ray.learn.samples import Made
from kb_ray.learn.sft import portions, total_steps
from kb_ray.tasks import entries
from kb_ray.traces.reading import survey
from kb_ray.traces.store import Store, open_store
from kb_ray.training import keeping
from kb_ray.training.dialogues import Clean, Dialogue, as_samples, of_store, require
from kb_ray.training.settings import SftSettings
from kb_ray.training.tracking import Tracker

OBJECTIVE = Objective(kind="likelihood", averaging="token")
Say = Callable[[str], None]


def run(settings: SftSettings, say: Say, device: str | None = None) -> int:
    """The whole run; steps taken in all. ConfigError for what cannot be used, NotFinite where the loss is none: then
    the last good step is kept."""
    if not settings.data:
        raise ConfigError("--data: name at least one trace store to learn from")
    store = open_store(settings.output)
    store.check_writable()
    dialogues, clean = _dialogues(settings)
    learner = Learner(settings.learner(None), device)
    made = as_samples(clean(dialogues), ChatTokens(learner.tokenizer), settings.max_tokens, settings.samples)
    require(made, clean.refused, settings.data, settings.max_tokens)
    say(_account(made, clean.refused))
    total = total_steps(len(made.samples), settings.rule())
    learner.settings = settings.learner(total)
    fingerprint = settings.fingerprint()
    found = keeping.resume(store, learner, fingerprint)
    if found is None and settings.start_from is not None:
        keeping.start_from(learner, settings.start_from)
    say(f"steps:    {total}" + (f", {learner.steps} of them taken already" if found else ""))
    _learn(settings, store, learner, made, total, fingerprint, say)
    return learner.steps


def _learn(
    settings: SftSettings, store: Store, learner: Learner, made: Made, total: int, fingerprint: str, say: Say
) -> None:
    tracker = Tracker(store, _board(settings, store), learner.steps)
    kept = learner.steps

    def keep() -> None:
        nonlocal kept
        if learner.steps > kept:
            keeping.save(store, learner, fingerprint, {"samples": len(made.samples)}, settings.keep_checkpoints)
            kept = learner.steps

    try:
        for portion in portions(made.samples, settings.rule(), learner.steps):
            began = time.monotonic()
            try:
                report = learner.step(portion.samples, OBJECTIVE)
            except NotFinite:
                keep()
                raise
            tracker.log(portion.step, _told(report, portion.epoch, time.monotonic() - began, learner.steps, total), {})
            if learner.steps % settings.checkpoint_every == 0:
                keep()
                say(f"step {learner.steps} of {total}: loss {report.loss:.4f}")
        keep()
    finally:
        tracker.close()


def _dialogues(settings: SftSettings) -> tuple[list[Dialogue], Clean]:
    options = ExportOptions("sft", keep=settings.keep, conversation=settings.conversation, reasoning=settings.reasoning)
    found = [dialogue for uri in settings.data for dialogue in of_store(survey(open_store(uri)), options)]
    kept_out = [
        entry.make().reference_code
        for spec in settings.eval_tasks
        for entry in entries(spec, settings.kernelbench_root, {})
    ]
    return found, Clean(kept_out)


def _account(made: Made, refused: int) -> str:
    """One line: what is learned from, and what is not, by reason."""
    left = [f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(made.left_out.items()) if count]
    if refused:
        left.append(f"{refused} of tasks kept clean")
    return f"samples:  {len(made.samples)}" + (f"; left out: {', '.join(left)}" if left else "")


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


def _board(settings: SftSettings, store: Store) -> Path | None:
    local = not store.uri.startswith("s3://")
    return Path(store.uri) / "tensorboard" if settings.tensorboard_enabled and local else None
