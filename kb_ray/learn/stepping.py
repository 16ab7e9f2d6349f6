"""What one optimizer step was, why one was not taken, and what every learner can do, wherever it learns.

Learners are of three kinds: in this process, in several, at a service. Knows none of them, and no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kb_ray.errors import KbRayError
from kb_ray.learn.objective import LearnerSettings, Objective
from kb_ray.learn.samples import Sample


class NotTaken(KbRayError):
    """A step was not taken: the weights are those of the step before."""


class NotFinite(NotTaken):
    """The loss or a gradient is no number."""


class OutOfMemory(NotTaken):
    """The device has not enough memory; says which setting to change, and whether the same output goes on then."""


class Elsewhere(OutOfMemory):
    """Another of the processes that take the step together ran out of memory; it says which setting to change."""


class StepReport(NamedTuple):
    """What one optimizer step was."""

    loss: float
    gradient_norm: float
    """NaN where it is not told."""
    learning_rate: float
    tokens: int
    """Tokens that were trained on."""
    clipped: float
    """Share of tokens whose ratio was out of bounds."""
    kl: float
    """Mean k3 against the model without its adapter; 0 where it is not asked for."""
    mismatch: float
    """Mean |log p of the learner - log p of the sampler| over tokens that a sampler drew."""
    left_out: int
    """Sequences that the correction left out."""


class Trainee(Protocol):
    """A learner as runs of training use it. ConfigError for what cannot be used, NotTaken where a step fails."""

    settings: LearnerSettings
    tokenizer: Any
    steps: int

    def learning_rate(self) -> float:
        """Of the next step."""
        ...

    def step(self, samples: Sequence[Sample], objective: Objective) -> StepReport:
        """One optimizer step over all of `samples`."""
        ...

    def epoch(self, samples: Sequence[Sample], objective: Objective, parts: int) -> list[StepReport]:
        """As many optimizer steps as `parts`, each over its share of `samples`."""
        ...

    def adapter(self) -> dict[str, bytes]:
        """The adapter's files by name, as PEFT writes them."""
        ...

    def state(self) -> dict[str, Any]:
        """What `restore` needs to go on as if nothing had been."""
        ...

    def restore(self, state: dict[str, Any], weights: bytes | None) -> None:
        """Take up a state, with the adapter that was kept with it (safetensors), where one was."""
        ...

    def begin_with(self, weights: bytes | None, state: dict[str, Any] | None) -> None:
        """Begin with another run's adapter and nothing else of it; `state` is that run's, where there is one."""
        ...

    def close(self) -> None:
        """Let go of what is held elsewhere."""
        ...


@runtime_checkable
class HoldsBase(Protocol):
    """A learner that has the base model's weights; one at a service has not."""

    def base_weights(self) -> dict[str, str]:
        """Fingerprints of them, by part: see `network.base_weights`."""
        ...


def under_another_output(steps: int | None) -> str:
    """Where a setting that decides what is learned can be changed: never in an output that there is.

    `steps`: optimizer steps of the run so far; from the first on it has a checkpoint. None: it may have one.

    A learner does not know of tritonrl's stages: each is a run below its output, and the second one always begins with
    what the first one left there, so that nothing but best-of-n can begin it with anything else.
    """
    if steps == 0:
        return "under another --output"
    this_one = "this one (of tritonrl: OUTPUT/sft, or by the command best-of-n OUTPUT/rl)"
    where = "" if steps else ", where it has a checkpoint,"
    return f"under another --output, with --start-from {this_one}{where} to begin with its last step's weights"


def learning_rate(settings: LearnerSettings, steps: int) -> float:
    """Of the step after `steps` of them: up over the warm-up, then constant or down along a cosine."""
    warm = min(1.0, (steps + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    if settings.total_steps is None:
        return settings.learning_rate * warm
    done = min(1.0, steps / max(settings.total_steps, 1))
    return settings.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * done))
