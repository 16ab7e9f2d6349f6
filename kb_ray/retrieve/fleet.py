"""Embeds on Ray: one actor per GPU, or one on CPUs, with several parts under way at once.

Knows nothing of corpora and stores; an actor that dies is started again by Ray and its part embedded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from kb_ray.errors import ConfigError, InfraError, KbRayError
from kb_ray.retrieve.embedding import PROBE, SentenceEmbedder

_MAX_THREADS = 16
_AHEAD = 2
"""Parts handed to each actor, so that none waits for the driver."""


class EmbedActor:
    """Holds the model on one GPU or CPU."""

    def __init__(self, model: str, device: str, batch_size: int) -> None:
        self._embedder = SentenceEmbedder(model, device, batch_size)

    def about(self) -> tuple[int, tuple[float, ...]]:
        """(dimension, vector of the probe)."""
        return self._embedder.dimension, tuple(float(x) for x in self._embedder.embed([PROBE])[0])

    def embed(self, texts: list[str]) -> Any:
        """[texts, dimension] float32."""
        return self._embedder.embed(texts)


class Fleet:
    """The actors of one build. `close` ends them.

    `gpus`, `cpus`: what the cluster has. ConfigError where the model cannot be loaded.
    """

    def __init__(self, model: str, *, gpus: int, cpus: int, workers: int | None, batch_size: int) -> None:
        import ray

        count = workers or max(1, gpus)
        device = "cuda" if gpus else "cpu"
        threads = str(max(1, min(_MAX_THREADS, cpus // count)))
        options: dict[str, Any] = {
            "num_gpus": min(1.0, gpus / count),
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
        self.dimension, self.probe = self._get(self._actors[0].about.remote())

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


def _line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[0][:300]
