"""Where bench workers go: how many, with which Ray resources and labels (pure).

Works on what `ray.nodes()`, `ray.cluster_resources()` and `ray.available_resources()` returned. Does not
call Ray and does not know what a worker does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kb_ray.errors import ConfigError
from kb_ray.records import Record

POOL_LABEL = ("kb-pool", "bench")
"""Nodes with this label are kept for evaluation; where there are any, workers go nowhere else."""


class Placement(Record):
    """What Ray is asked for."""

    workers: int
    num_gpus: int
    """GPUs of each worker, 0 or 1."""
    num_cpus: float
    """CPUs of each worker; a fraction where fewer are free than there are workers."""
    labels: dict[str, str]
    """Labels that a node must have; empty: any node."""

    @property
    def need(self) -> str:
        """What one worker needs, in words."""
        return "a GPU" if self.num_gpus else f"{self.num_cpus:g} CPU"

    def options(self, name: str, concurrency: int) -> dict[str, Any]:
        """Options of the Ray actor called `name` that evaluates `concurrency` requests at once."""
        options: dict[str, Any] = {
            "name": name,
            "num_gpus": self.num_gpus,
            "num_cpus": self.num_cpus,
            "max_restarts": -1,
            # A retry is the pool's decision: it goes to another worker and is counted.
            "max_task_retries": 0,
            # Two places more than evaluations, so that ready, stats and stop are heard while all are busy.
            "max_concurrency": concurrency + 2,
        }
        if self.labels:
            options["label_selector"] = dict(self.labels)
        if not self.num_gpus:
            # Ray leaves every GPU visible to an actor that asked for none.
            options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}
        return options


def place(
    device: str,
    workers: int | None,
    nodes: Sequence[Mapping[str, Any]],
    total: Mapping[str, float],
    available: Mapping[str, float],
) -> Placement:
    """How to place `workers` workers (None or 0: one per GPU that is free, or one on CPUs).

    Raises ConfigError where a GPU is wanted, the number is left open, and the cluster has none.
    """
    key, value = POOL_LABEL
    kept = [node for node in nodes if node.get("Alive") and (node.get("Labels") or {}).get(key) == value]
    # Without GPUs one worker does: a second one would only import torch three times more.
    count = workers or (_gpu_count(kept, total, available) if device == "cuda" else 1)
    if not count:
        raise ConfigError(
            "the Ray cluster has no GPU for evaluation: use --device cpu, or give --bench-workers so that "
            "Ray waits for nodes to come"
        )
    return Placement(
        workers=count,
        num_gpus=int(device == "cuda"),
        num_cpus=_cpu_share(count, total, available),
        labels={key: value} if kept else {},
    )


def _gpu_count(nodes: Sequence[Mapping[str, Any]], total: Mapping[str, float], free: Mapping[str, float]) -> int:
    if nodes:
        return int(sum(node.get("Resources", {}).get("GPU", 0) for node in nodes))
    return int(free.get("GPU", 0)) or int(total.get("GPU", 0))


def _cpu_share(count: int, total: Mapping[str, float], available: Mapping[str, float]) -> float:
    """One CPU each, less where a small machine has no more: workers that never start help nobody."""
    if not total.get("CPU"):
        return 1.0
    return min(1.0, math.floor(100 * available.get("CPU", 0) / count) / 100)
