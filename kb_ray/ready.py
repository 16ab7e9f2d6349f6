"""A run that may begin: what preflight found, and which of its episodes are left to do.

Holds what others made. Checks nothing itself, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kb_ray import cluster as ray_cluster
from kb_ray.bench.protocol import BenchSettings
from kb_ray.config import AT_ONCE, RunConfig
from kb_ray.drive import Work
from kb_ray.errors import ConfigError, StoreError
from kb_ray.model.completer import Completer, ModelInfo
from kb_ray.prompts.budget import Messages
from kb_ray.prompts.opening import PromptSetting
from kb_ray.raicl import Examples, opening
from kb_ray.records import REDONE_ON_RESUME, Retrieved, Task
from kb_ray.traces.layout import sources
from kb_ray.traces.resume import FinishedEpisode, finished
from kb_ray.traces.run import RunInfo
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import Store

Planned = list[tuple[Task, int]]


@dataclass(frozen=True)
class Ready:
    """A run that may begin."""

    config: RunConfig
    everything: Planned
    """What the run is to hold, all shards together."""
    planned: Planned
    """Of that, what this start's shard takes."""
    work: list[Work]
    """Episodes to run."""
    again: list[Work]
    """With --retry-failed: second attempts of episodes that earlier starts left without a correct turn."""
    store: Store
    run: RunInfo
    """What run.json holds, or will hold."""
    completer: Completer
    model: ModelInfo
    prompt: PromptSetting
    bench: BenchSettings
    cluster: ray_cluster.Cluster | None
    """None where nothing is to be run."""
    seen: tuple[str, ...] = ()
    """Files of the store from which it was concluded what is left to do."""
    examples: Examples | None = None
    warnings: tuple[str, ...] = ()
    """What is no mistake and yet worth knowing, a line each."""

    @property
    def earlier(self) -> int:
        """Planned episodes that earlier starts finished."""
        return len(self.planned) - len(self.work)

    @property
    def shard(self) -> Shard:
        """The part of the run that this start takes."""
        return Shard.of(self.config.shard)

    def looked_again(self) -> Ready:
        """The same, with what other starts have written since: to be asked once nobody else may write."""
        seen = files_of(self.store)
        if seen == self.seen:
            return self
        work, again = remaining(self.planned, finished_in(self.store), self.config.retry_failed)
        return replace(self, work=work, again=again, seen=seen)

    def opening(self, task: Task) -> tuple[Messages, Retrieved | None]:
        """First messages for a task, and which examples they show."""
        return opening(self.examples, task, self.prompt)

    @property
    def bench_concurrency(self) -> int:
        """Candidates that each worker takes at once."""
        return self.config.bench_concurrency or AT_ONCE[self.bench.device]


def remaining(
    planned: Planned, done: Mapping[tuple[str, int], FinishedEpisode], retry_failed: bool
) -> tuple[list[Work], list[Work]]:
    """(episodes to run, second attempts to make after them) of a plan of which `done` is in the store.

    What ended in model_error or infra_error is run again as the next attempt.
    """
    work, again = [], []
    for task, sample in planned:
        known = done.get((task.task_id, sample))
        if known is None:
            work.append(Work(task, sample, 1))
        elif known.stop_reason in REDONE_ON_RESUME:
            work.append(Work(task, sample, known.attempt + 1))
        elif retry_failed and known.attempt == 1 and not known.correct:
            again.append(Work(task, sample, 2))
    return work, again


def files_of(store: Store) -> tuple[str, ...]:
    """The files that hold its episodes. ConfigError where the store fails."""
    try:
        return tuple(sources(store))
    except StoreError as error:
        raise ConfigError(f"--output: {error}") from None


def finished_in(store: Store) -> dict[tuple[str, int], FinishedEpisode]:
    """What `finished` says. ConfigError where the store fails."""
    try:
        return finished(store)
    except StoreError as error:
        raise ConfigError(f"--output: {error}") from None
