"""Embeds on Ray: one actor per GPU, or one on CPUs, with several parts under way at once.

Knows nothing of corpora and stores; an actor that dies is started again by Ray and its part embedded again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np

from kb_ray.errors import ConfigError, InfraError, KbRayError
from kb_ray.retrieve.embedding import PROBE, SentenceEmbedder

_MAX_THREADS = 16
_STARTED_WITHIN_S = 300.0
"""Seconds in which the processes of all actors must be there, models not counted: a cluster may have to grow first."""
_AHEAD = 2
"""Parts handed to each actor, so that none waits for the driver."""


class EmbedActor:
    """Holds the model on one GPU or CPU, from the first use on: `ready` tells a place from a model that is late."""

    def __init__(self, model: str, device: str, batch_size: int) -> None:
        self._asked = (model, device, batch_size)

    @cached_property
    def _embedder(self) -> SentenceEmbedder:
        return SentenceEmbedder(*self._asked)

    def ready(self) -> None:
        """Returns once the process is there."""

    def about(self) -> tuple[int, tuple[float, ...]]:
        """(dimension, vector of the probe)."""
        return self._embedder.dimension, tuple(float(x) for x in self._embedder.embed([PROBE])[0])

    def embed(self, texts: list[str]) -> Any:
        """[texts, dimension] float32."""
        return self._embedder.embed(texts)


class Fleet:
    """The actors of one build. `close` ends them.

    `gpus`, `cpus`: what the cluster has. ConfigError where the model cannot be loaded, InfraError where the actors find
    no room.
    """

    def __init__(self, model: str, *, gpus: int, cpus: int, workers: int | None, batch_size: int) -> None:
        import ray

        count = _how_many(workers, gpus, cpus)
        device = "cuda" if gpus else "cpu"
        threads = str(max(1, min(_MAX_THREADS, cpus // count)))
        options: dict[str, Any] = {
            # Whole numbers of actors on each GPU: 0.6 of one would leave 0.4 that no actor can use.
            "num_gpus": math.floor(1e4 / math.ceil(count / gpus)) / 1e4 if gpus else 0,
            "num_cpus": 0 if gpus else 1,
            "max_restarts": 3,
            "max_task_retries": 3,
            # Ray gives an actor as many threads as CPUs it asked for.
            "runtime_env": {"env_vars": {"OMP_NUM_THREADS": threads}},
        }
        made = ray.remote(EmbedActor).options(**options)
        self._actors = [made.remote(model, device, batch_size) for _ in range(count)]
        self._turn = cycle(self._actors)
        self.places = _AHEAD * count
        try:
            self._await_places(count)
            self.dimension, self.probe = self._get(self._actors[0].about.remote())
        except BaseException:
            self.close()
            raise

    def submit(self, texts: Sequence[str]) -> Any:
        """See building.Embedders."""
        return next(self._turn).embed.remote(list(texts))

    def result(self, ticket: Any) -> Any:
        """See building.Embedders. InfraError where an actor died again and again."""
        return np.asarray(self._get(ticket), dtype=np.float32)

    def close(self) -> None:
        """Ends the actors."""
        import ray

        for actor in self._actors:
            ray.kill(actor)

    def _await_places(self, count: int) -> None:
        import ray

        waiting = [actor.ready.remote() for actor in self._actors]
        started, missing = ray.wait(waiting, num_returns=count, timeout=_STARTED_WITHIN_S)
        if missing:
            raise InfraError(
                f"{len(missing)} of {count} embedding actors found no room on the cluster within "
                f"{_STARTED_WITHIN_S:.0f} s: others hold its CPUs or GPUs; wait for them, or ask for fewer --workers"
            )
        for ref in started:
            self._get(ref)

    def _get(self, ref: Any) -> Any:
        import ray
        from ray.exceptions import ActorDiedError, RayError, RayTaskError

        try:
            return ray.get(ref)
        except RayTaskError as error:
            raise self._cause(error) from error
        except ActorDiedError as error:
            # What __init__ raises comes as the actor's death.
            raise self._told(str(error)) from error
        except RayError as error:
            raise InfraError(f"embedding failed: {_line(str(error))}; start again to go on") from error

    def _cause(self, error: Any) -> KbRayError:
        cause = getattr(error, "cause", error)
        return cause if isinstance(cause, KbRayError) else InfraError(f"embedding failed: {_line(str(cause))}")

    def _told(self, text: str) -> KbRayError:
        mark = "ConfigError: "
        if mark in text:
            return ConfigError(_line(text.partition(mark)[2]))
        return InfraError(f"an embedding actor died: {_line(text)}; start again to go on")


def _how_many(workers: int | None, gpus: int, cpus: int) -> int:
    """Actors: as many as asked for, on CPUs no more than there are of those; says where it is fewer."""
    count = workers or max(1, gpus)
    if gpus or count <= max(1, cpus):
        return count
    print(f"--workers {count}: the cluster has {cpus} CPUs, so {max(1, cpus)} embed", file=sys.stderr, flush=True)
    return max(1, cpus)


def _line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[0][:300]
