"""Every metric that kb_ray exports: name, kind, unit, labels with all their values, description. Only declarations.

Labels are bounded by being listed here: no task, episode, run or host is ever one. Does not know Ray beyond how it
names what it exports, nor where a number comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from kb_ray.records import StopReason
from kb_ray.statuses import Status

OTHER = "other"
"""Stands for a label's value that is not listed."""
_EXPORT_PREFIX = "ray_"
"""Ray puts this before every name that it exports."""

SPEEDUP_BUCKETS = (0.1, 0.25, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
WAIT_BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
PHASES = (
    "model_queue", "model", "queue_memory", "queue_timing", "reference", "start", "load", "check", "ablation",
    "generalise", "timing_inputs", "timing",
)  # fmt: skip
"""What a turn spends its time on: waiting for a place at the model, the model's answer, and the verifier's phases."""


@dataclass(frozen=True)
class Metric:
    """One metric as kb_ray records it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    """What is counted: `episodes`, `seconds`, `bytes`, `ratio`."""
    description: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label -> every value it takes."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending, above 0."""

    @property
    def exported(self) -> tuple[str, ...]:
        """The names under which Prometheus finds it, as Ray 2.60 makes them."""
        base = _EXPORT_PREFIX + self.name
        if self.kind == "counter":
            return (f"{base}_total",)
        if self.kind == "histogram":
            return (f"{base}_bucket", f"{base}_count", f"{base}_sum")
        return (base,)

    def series(self) -> Iterator[dict[str, str]]:
        """Every combination of the listed labels; one without any for a metric that has none."""
        for values in product(*self.labels.values()):
            yield dict(zip(self.labels, values, strict=True))

    def bounded(self, labels: Mapping[str, str]) -> dict[str, str]:
        """`labels` with each value that is not listed as OTHER. KeyError for a label that the metric has not."""
        return {name: value if value in self.labels[name] else OTHER for name, value in labels.items()}


EPISODES = Metric(
    "kb_ray_episodes", "counter", "episodes", "Episodes that ended, by stop reason.",
    {"stop_reason": tuple(map(str, StopReason))},
)  # fmt: skip
SOLVED = Metric("kb_ray_solved_episodes", "counter", "episodes", "Episodes that ended with a correct kernel.")
PLANNED = Metric(
    "kb_ray_planned_episodes", "gauge", "episodes", "Episodes that the run will hold, by whether the store holds them.",
    {"state": ("done", "open")},
)  # fmt: skip
TURNS = Metric("kb_ray_turns", "counter", "turns", "Turns that have a verdict, those without code included.")
VERDICTS = Metric(
    "kb_ray_verdicts", "counter", "verdicts", "Verdicts by status, those on answers without code included.",
    {"status": tuple(map(str, Status))},
)  # fmt: skip
CORRECT = Metric(
    "kb_ray_correct_verdicts", "counter", "verdicts", "Correct kernels, by whether everything could be excluded.",
    {"trusted": ("yes", "no")},
)  # fmt: skip
SPEEDUP = Metric(
    "kb_ray_speedup", "histogram", "ratio", "Reference time over kernel time of correct, timed and trusted kernels.",
    buckets=SPEEDUP_BUCKETS,
)  # fmt: skip
PHASE_SECONDS = Metric(
    "kb_ray_phase_seconds", "counter", "seconds", "Wall seconds that turns spent, by phase.", {"phase": PHASES}
)
ANSWER_SECONDS = Metric(
    "kb_ray_answer_seconds", "histogram", "seconds", "From sending a request to the model's whole answer.",
    buckets=WAIT_BUCKETS,
)  # fmt: skip
VERDICT_SECONDS = Metric(
    "kb_ray_verdict_seconds", "histogram", "seconds", "From handing a candidate to the pool to its verdict.",
    buckets=WAIT_BUCKETS,
)  # fmt: skip
TOKENS = Metric(
    "kb_ray_tokens", "counter", "tokens", "Tokens as the model server counts them.", {"kind": ("prompt", "completion")}
)
GENERATING = Metric("kb_ray_generations_in_flight", "gauge", "requests", "Requests that are with the model now.")
VERIFYING = Metric("kb_ray_verdicts_in_flight", "gauge", "candidates", "Candidates that hold a place on a worker now.")
WAITING = Metric(
    "kb_ray_waiting", "gauge", "entries", "Waiting for a place at the model or on a worker, or for being written.",
    {"queue": ("model", "bench", "store")},
)  # fmt: skip
WORKERS = Metric(
    "kb_ray_bench_workers", "gauge", "workers", "Bench workers that take candidates now, and those that do not.",
    {"state": ("ready", "not_ready")},
)  # fmt: skip
UTILISATION = Metric("kb_ray_bench_utilisation", "gauge", "ratio", "Share of the ready workers' places in use, 0 to 1.")
INFRA_RETRIES = Metric("kb_ray_infra_retries", "counter", "tries", "Tries repeated because our own side failed.")
QUARANTINED = Metric("kb_ray_quarantined_gpus", "gauge", "devices", "Devices whose verdicts are not trusted now.")
PARTS = Metric("kb_ray_parts_written", "counter", "parts", "Parts committed to the trace store.")
BYTES = Metric("kb_ray_bytes_written", "counter", "bytes", "Bytes of the parts committed to the trace store.")

ALL = (
    EPISODES, SOLVED, PLANNED, TURNS, VERDICTS, CORRECT, SPEEDUP, PHASE_SECONDS, ANSWER_SECONDS, VERDICT_SECONDS,
    TOKENS, GENERATING, VERIFYING, WAITING, WORKERS, UTILISATION, INFRA_RETRIES, QUARANTINED, PARTS, BYTES,
)  # fmt: skip
