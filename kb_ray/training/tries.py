"""What was tried, as traces: every try is a sample of its own, also where a batch is done again after a kill.

A run that goes on from a checkpoint does the batches after it once more, with other weights or other random numbers,
while the store may hold what was tried in them before. Samples of a task therefore count on from the highest in the
store: neither stands in for the other. Knows a trace store and finished tries; no weights and no reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from kb_ray.learn.rollouts import Try
from kb_ray.records import Episode, Message, Retrieved, Task
from kb_ray.refine import to_episode
from kb_ray.traces.resume import finished
from kb_ray.traces.run import episode_id
from kb_ray.traces.store import Store

Opening = Callable[[Task], tuple[tuple[Message, ...], Retrieved | None]]
"""The first messages of a task, and which examples are in them."""


class Tries:
    """Numbers and keeps the tries of one start of a run."""

    def __init__(
        self, store: Store, keep: Callable[[Episode], None], opening: Opening, *, run_id: str, fingerprint: str,
        group_size: int, batch: int,
    ) -> None:  # fmt: skip
        """`batch`: the one that comes next, from 0. StoreError where the store's traces cannot be read."""
        self._keep, self._opening = keep, opening
        self._run_id, self._fingerprint, self._group_size = run_id, fingerprint, group_size
        highest = max((sample for _, sample in finished(store)), default=-1)
        self._again = max(0, highest // group_size + 1 - batch)

    def first(self, batch: int) -> int:
        """The sample of each task's first try in this batch; the others follow it."""
        return (batch + self._again) * self._group_size

    def tell(self, batch: int, groups: Sequence[Sequence[Try]]) -> None:
        """Keep all tries of a batch."""
        now, first = datetime.now(UTC).isoformat(timespec="seconds"), self.first(batch)
        for one in (one for group in groups for one in group):
            self._keep(self._episode(one, first + one.sample, now))

    def _episode(self, one: Try, sample: int, now: str) -> Episode:
        task = one.state.task
        identity = episode_id(task.task_id, sample, 1, self._fingerprint)
        found = to_episode(
            one.state, one.finish, episode_id=identity, run_id=self._run_id, sample=sample, attempt=1, created_at=now
        )
        return found.model_copy(update={"retrieved": self._opening(task)[1]})
