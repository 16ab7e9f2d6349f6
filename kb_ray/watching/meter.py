"""Where measurements go, and which measurements follow from an answer, a turn and an episode.

The driver's counters call the three functions; what a meter does with a number is its own affair. Without a meter
nothing happens. Knows no Ray and no clock.
"""

from __future__ import annotations

from typing import Protocol

from kb_ray.records import Completion, Episode, Turn
from kb_ray.watching import catalogue
from kb_ray.watching.catalogue import Metric


class Meter(Protocol):
    """Takes measurements. Never raises and never waits: it is called from the driver's loop."""

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        """A counter grew by `amount`; nothing happens where that is 0."""
        ...

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """A gauge has this value now."""
        ...

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """One more value of a histogram."""
        ...


class Silent:
    """A meter that is not listening."""

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        """See Meter."""

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """See Meter."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """See Meter."""


def answered(meter: Meter, completion: Completion) -> None:
    """The model answered."""
    meter.add(catalogue.TOKENS, completion.usage.prompt_tokens, kind="prompt")
    meter.add(catalogue.TOKENS, completion.usage.completion_tokens, kind="completion")
    meter.observe(catalogue.ANSWER_SECONDS, completion.latency_s)


def judged(meter: Meter, turn: Turn) -> None:
    """A turn has its verdict."""
    verdict = turn.verdict
    meter.add(catalogue.TURNS, 1)
    meter.add(catalogue.VERDICTS, 1, status=verdict.status.value)
    if verdict.correct:
        meter.add(catalogue.CORRECT, 1, trusted="yes" if verdict.trusted else "no")
        if verdict.trusted and verdict.speedup is not None:
            meter.observe(catalogue.SPEEDUP, verdict.speedup)
    if turn.triton_code is not None:
        meter.observe(catalogue.VERDICT_SECONDS, turn.times.bench_s)
    meter.add(catalogue.PHASE_SECONDS, turn.times.model_queue_s, phase="model_queue")
    meter.add(catalogue.PHASE_SECONDS, turn.times.model_s, phase="model")
    for phase, seconds in verdict.seconds.items():
        if phase != "total":
            meter.add(catalogue.PHASE_SECONDS, seconds, phase=phase)


def ended(meter: Meter, episode: Episode) -> None:
    """An episode is over and handed to the store."""
    meter.add(catalogue.EPISODES, 1, stop_reason=episode.stop_reason.value)
    if any(turn.verdict.correct for turn in episode.turns):
        meter.add(catalogue.SOLVED, 1)
