"""Where processes that learn go: on which nodes, and whether each has a GPU (pure).

Works on what `ray.nodes()` returned. Does not call Ray and does not know what a process does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kb_ray.errors import ConfigError
from kb_ray.records import Record

KEY = "kb-pool"
"""Label that says what a node is kept for."""
POOL = {KEY: "train"}
"""Label selector where the cluster has pools, whether or not this one has a node now."""
OTHERS = ("bench", "serve")
"""What nodes may be kept for that processes which learn stay off."""
BOOT_S = 1800.0
"""How long nodes may take to come."""
ROOM_S = 600.0
"""How long room may take to become free on nodes that are there."""


class Seats(Record):
    """What Ray is asked for."""

    gpus: bool
    """Whether each process has a GPU."""
    labels: dict[str, str]
    """Label selector of the nodes; empty: any node."""
    start_s: float
    """How long to wait until all processes live, in seconds."""
    lacking: int
    """GPUs that must still come, by nodes."""

    @property
    def need(self) -> str:
        """What one process needs, in words."""
        where = " and ".join(f"{key}={value}" for key, value in self.labels.items())
        return ("a GPU" if self.gpus else "a CPU") + (f" on a node labelled {where}" if where else "")


def place(processes: int, nodes: Sequence[Mapping[str, Any]]) -> Seats:
    """Seats of so many processes: one GPU each, CPUs where the nodes that may be used have no GPU.

    A cluster whose head or some other node is labelled as ours are brings nodes of the pool. ConfigError where no
    nodes are to come, and those that are there have GPUs and too few.
    """
    alive = [node for node in nodes if node.get("Alive")]
    kept = {(node.get("Labels") or {}).get(KEY) for node in alive} - {None}
    if kept & {"head", POOL[KEY]}:
        pool = [node for node in alive if (node.get("Labels") or {}).get(KEY) == POOL[KEY]]
        there = _gpus(pool)
        gpus = bool(there) or not pool
        lacking = max(0, processes - there) if gpus else 0
        return Seats(gpus=gpus, labels=POOL, start_s=BOOT_S, lacking=lacking)
    there = _gpus([node for node in alive if (node.get("Labels") or {}).get(KEY) not in OTHERS])
    if 0 < there < processes:
        raise ConfigError(f"--train-workers {processes}: the cluster has {there} GPUs, and each process takes one")
    labels = {KEY: f"!in({', '.join(OTHERS)})"} if kept else {}
    return Seats(gpus=there > 0, labels=labels, start_s=ROOM_S, lacking=0)


def _gpus(nodes: Sequence[Mapping[str, Any]]) -> int:
    return sum(int((node.get("Resources") or {}).get("GPU", 0)) for node in nodes)
