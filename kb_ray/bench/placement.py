"""Where bench workers go: how many, with which Ray resources and labels (pure).

Works on what `ray.nodes()`, `ray.cluster_resources()` and `ray.available_resources()` returned. Does not
call Ray and does not know what a worker does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kb_ray.errors import ConfigError
from kb_ray.records import Record

POOL_LABEL = ("kb-pool", "bench")
"""Nodes with this label are kept for evaluation; where nodes have the key at all, workers go to these only."""
Nodes = Literal["auto", "labelled", "any"]
Counts = int | tuple[int, int] | None
"""Workers asked for: so many, from so many to so many, or as many as fit."""


class Placement(Record):
    """What Ray is asked for."""

    low: int
    """Workers that there are always."""
    workers: int
    """Workers at most."""
    num_gpus: int
    """GPUs of each worker, 0 or 1."""
    num_cpus: float
    """CPUs of each worker; a fraction where fewer are free than there are workers."""
    labels: dict[str, str]
    """Labels that a node must have; empty: any node."""

    @property
    def need(self) -> str:
        """What one worker needs, in words."""
        what = "a GPU" if self.num_gpus else f"{self.num_cpus:g} CPU"
        where = " and ".join(f"{key}={value}" for key, value in self.labels.items())
        return f"{what} on a node labelled {where}" if where else what

    @property
    def waits_for_nodes(self) -> bool:
        """Whether nodes may have to boot for it."""
        return bool(self.labels) or self.low < self.workers

    def options(self, name: str, requests: int) -> dict[str, Any]:
        """Options of the Ray actor called `name` that has so many requests at once."""
        options: dict[str, Any] = {
            "name": name,
            "num_gpus": self.num_gpus,
            "num_cpus": self.num_cpus,
            "max_restarts": -1,
            # A retry is the pool's decision: it goes to another worker and is counted.
            "max_task_retries": 0,
            # Two places more than requests, so that ready, stats and stop are heard while all are busy.
            "max_concurrency": requests + 2,
        }
        if self.labels:
            options["label_selector"] = dict(self.labels)
        if not self.num_gpus:
            # Ray leaves every GPU visible to an actor that asked for none.
            options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}
        return options

    def may_hold(self, node: Mapping[str, Any]) -> bool:
        """Whether a worker could go to this node of `ray.nodes()`."""
        labels, resources = node.get("Labels") or {}, node.get("Resources") or {}
        fits = resources.get("GPU", 0) >= self.num_gpus and resources.get("CPU", 0) >= self.num_cpus
        return bool(node.get("Alive")) and fits and self.labels.items() <= labels.items()


def place(
    device: str,
    workers: Counts,
    nodes: Sequence[Mapping[str, Any]],
    total: Mapping[str, float],
    available: Mapping[str, float],
    *,
    where: Nodes = "auto",
    cpus: float | None = None,
) -> Placement:
    """How to place `workers` workers (None or 0: one per GPU that is free, or one on CPUs).

    `where`: only nodes with the pool's label, any node, or the first where some node has the label's key. `cpus`:
    CPUs of each worker; None: 1, less where a small machine has no more.

    Raises ConfigError where a GPU is wanted, the number is left open, and the cluster has none.
    """
    key, value = POOL_LABEL
    alive = [node for node in nodes if node.get("Alive")]
    named = [node for node in alive if key in (node.get("Labels") or {})]
    kept = [node for node in named if node["Labels"][key] == value]
    labelled = where == "labelled" or (where == "auto" and bool(named))
    if isinstance(workers, tuple):
        low, high = workers
    else:
        # Without GPUs one worker does: a second one would only import torch three times more.
        low = high = workers or (_gpu_count(kept if labelled else None, total, available) if device == "cuda" else 1)
    if not high:
        raise ConfigError(
            "the Ray cluster has no GPU for evaluation: use --device cpu, or give --bench-workers (such as 0:8) so "
            "that Ray brings or waits for nodes"
        )
    # Nodes that are still to come have whole CPUs, and a worker that can wait for one had better not share.
    roomy = labelled and (low < high or not kept)
    return Placement(
        low=low,
        workers=high,
        num_gpus=int(device == "cuda"),
        num_cpus=cpus if cpus is not None else 1.0 if roomy else _cpu_share(high, total, available),
        labels={key: value} if labelled else {},
    )


def _gpu_count(nodes: Sequence[Mapping[str, Any]] | None, total: Mapping[str, float], free: Mapping[str, float]) -> int:
    if nodes is not None:
        return int(sum(node.get("Resources", {}).get("GPU", 0) for node in nodes))
    return int(free.get("GPU", 0)) or int(total.get("GPU", 0))


def _cpu_share(count: int, total: Mapping[str, float], available: Mapping[str, float]) -> float:
    """One CPU each, less where a small machine has no more: workers that never start help nobody."""
    if not total.get("CPU"):
        return 1.0
    return min(1.0, math.floor(100 * available.get("CPU", 0) / count) / 100)
