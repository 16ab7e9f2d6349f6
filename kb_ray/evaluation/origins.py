"""What a store's run says of its answers: who gave them, over how many turns, and whether training changed who did.

A run that generates or evaluates and one that trains name these things differently. How much of its plan is there is
found out in coverage; here that is put beside the rest.
"""

from __future__ import annotations

from kb_ray.evaluation.coverage import Coverage, coverage_of
from kb_ray.traces.reading import Survey
from kb_ray.traces.run import RunInfo, read_run


def model_of(run: RunInfo) -> str | None:
    """The model that was asked; of a training run the base of what was trained. None where none is named."""
    name = run.identity.get("model") or run.identity.get("model_name")
    return None if name is None else str(name)


def training_of(run: RunInfo) -> str | None:
    """The command of a training run; None of any other."""
    command = run.identity.get("command")
    return None if command is None else str(command)


def is_multi_turn(run: RunInfo) -> bool:
    """Whether an episode could have several turns."""
    if training_of(run) is not None or "mode" in run.config:
        # Only where several turns can be trained on is there a choice.
        return run.config.get("mode") == "multi_turn"
    return bool(run.config.get("multi_turn", True))


def notes(training: str | None, retried: int, covered: Coverage | None = None) -> list[str]:
    """What a reader of rates has to know: `training` as `training_of`, `retried` episodes tried more than once, and
    how much of the plan is there."""
    told = [covered.note] if covered is not None and covered.note is not None else []
    if retried:
        told.append(f"Tried more than once: {retried} episodes. The first judged attempt of each counts.")
    if training is not None:
        told.append(
            f"Answers of training ({training}): the policy changed from step to step, so that pass@k and all "
            "other rates pool the answers of several policies."
        )
    return told


def notes_of(found: Survey, retried: int) -> list[str]:
    """The same of a store that was looked at; one that was put together by hand may have no run. ConfigError where
    run.json is damaged."""
    run = read_run(found.store)
    return notes(training_of(run) if run else None, retried, coverage_of(found))
