"""Which episodes of a run a shard takes: `I/N`, decided by the episode's own name (pure).

By a hash of task and sample and not by its place in a plan: a run that is extended, or whose shards were started with
different plans, gives no episode to two shards. Shards differ in size by chance, a percent or two in a large run.
"""

from __future__ import annotations

import hashlib
import json
import re

from kb_ray.records import Record

_FORM = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)")
MOST_SHARDS = 4096


class Shard(Record):
    """Shard `index` of `count`, from 1. `1/1` is the whole run."""

    index: int = 1
    count: int = 1

    @classmethod
    def of(cls, text: str | None) -> Shard:
        """`I/N`; None is the whole run. ValueError for anything else."""
        if text is None:
            return cls()
        found = _FORM.fullmatch(text)
        index, count = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= index <= count <= MOST_SHARDS:
            raise ValueError(f"must be I/N with I from 1 to N and N up to {MOST_SHARDS}, such as 1/4")
        return cls(index=index, count=count)

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def suffix(self) -> str:
        """Tells what belongs to one shard from what belongs to others of its run; empty for the whole run."""
        return "" if self.whole else f"-{self.index}of{self.count}"

    @property
    def whole(self) -> bool:
        """Whether it is the whole run."""
        return self.count == 1

    def holds(self, task_id: str, sample: int) -> bool:
        """Whether the episode is this shard's."""
        if self.whole:
            return True
        name = json.dumps([task_id, sample]).encode()
        return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") % self.count == self.index - 1

    def meets(self, other: Shard) -> bool:
        """Whether some episode may be both's: all but different shards of one division."""
        return self.count != other.count or self.index == other.index

    def yields_to(self, other: Shard) -> bool:
        """Which of two that meet and begin at one moment gives way: the whole run, or the coarser division."""
        return (other.count, -other.index) > (self.count, -self.index)
