"""Which machines will verify: where workers go, what those machines have, and whether they are alike.

Asks the nodes of a cluster once, before anything is generated. Does not start workers: `bench.pool` does, and looks
at every machine again that comes later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kb_ray.bench.placement import Placement, place
from kb_ray.bench.site import Site, compare, site
from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError

_ANSWER_S = 60.0
"""How long nodes may take to say what they are; each has to start its first worker process for it."""


@dataclass(frozen=True)
class BenchNodes:
    """What is known of the machines that will verify."""

    site: Site
    """What they have in common; nothing where none is there yet."""
    warnings: tuple[str, ...] = ()
    """One line each."""


def look(config: RunConfig, device: str, joined: bool) -> BenchNodes:
    """The machines of the connected cluster that workers may go to. `joined`: it was there before this run.

    ConfigError where there is nothing to verify on, and where machines differ in what verdicts depend on.
    """
    import ray

    placement = place(
        device, config.worker_counts, ray.nodes(), ray.cluster_resources(), ray.available_resources(),
        where=config.bench_nodes, cpus=config.bench_cpus,
    )  # fmt: skip
    sites = _ask([node["NodeID"] for node in ray.nodes() if placement.may_hold(node)]) if joined else [site()]
    stops, warns = compare(sites)
    if stops:
        raise ConfigError("; ".join(stops))
    return BenchNodes(_common(sites), (*warns, *_shared(placement, joined)))


def _ask(nodes: Sequence[str]) -> list[Site]:
    """What each of these nodes says of itself; those that do not answer in time are left out."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def on(node: str) -> Any:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        return ray.remote(site).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()

    asked = [on(node) for node in nodes]
    if not asked:
        return []
    answered, silent = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S)
    for one in silent:
        ray.cancel(one, force=True)
    found = []
    for one in answered:
        try:
            found.append(Site.model_validate(ray.get(one)))
        except ray.exceptions.RayError:
            continue
    return found


def _common(sites: Sequence[Site]) -> Site:
    """What all say alike; None for the rest."""
    values = {name: {getattr(one, name) for one in sites} for name in Site.model_fields}
    return Site(**{name: found.pop() for name, found in values.items() if len(found) == 1})


def _shared(placement: Placement, joined: bool) -> list[str]:
    """What is worth knowing of a pool that may have to share its nodes."""
    if placement.num_gpus and joined and not placement.labels:
        return [
            "bench workers go to any node with a GPU: where others use GPUs of the same node, verdicts carry the flag "
            "shared_node; label nodes kb-pool=bench to keep them for evaluation"
        ]
    return []
