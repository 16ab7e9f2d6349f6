"""What must hold between episodes: none twice, none lost, attempts with a reason, compactions whole (pure).

Rows come file by file, in the order in which readers take them; of each (task, sample) a few numbers are kept, no text.
Does not know what is inside an episode nor where rows come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kb_ray.records import REDONE_ON_RESUME
from kb_ray.traces.plans import Pairs
from kb_ray.traces.shards import Shard
from kb_ray.traces.starts import Start
from kb_ray.verifying.findings import MARK_BYTES, READ_OUT, TASK_FIELDS, Fault, FileRows, Row, named

_RULE = "readers take the first"


@dataclass(frozen=True, slots=True)
class _Known:
    row: Row
    key: str


_STOPPED = frozenset({"signal", "budget", "failing"})
"""Endings before all was done, in which what is finished is written first."""


@dataclass
class Ledger:
    """All rows so far. `one_version`: a kb_ray that reads programs as this one does wrote them."""

    one_version: bool = False
    rows: int = 0
    superseded: int = 0
    repeated: int = 0
    _attempts: dict[tuple[str, int], dict[int, _Known]] = field(default_factory=dict)
    _tasks: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    _described: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, file: FileRows) -> Iterator[Fault]:
        """Takes a file's rows; what is wrong with them beside earlier ones. Exhaust it."""
        for row in file.rows:
            self.rows += 1
            yield from self._task(row, file.key)
            attempts = self._attempts.setdefault((row.task_id, row.sample), {})
            known = attempts.get(row.attempt)
            if known is None:
                attempts[row.attempt] = _Known(row, file.key)
            elif known.row.content == row.content:
                self.repeated += 1
            else:
                self.repeated += 1
                what = (
                    f"another episode of the same attempt is in {known.key}; {_RULE}, so that this one counts nowhere"
                )
                yield Fault(kind="repeated", part=file.key, episode=named(row), what=what)

    @property
    def episodes(self) -> int:
        """Each (task, sample) once."""
        return len(self._attempts)

    @property
    def to_redo(self) -> int:
        """Those whose highest attempt failed on our side or the model server's."""
        return sum(known.row.stop_reason in REDONE_ON_RESUME for known in self._latest())

    def attempts(self) -> Iterator[Fault]:
        """Attempts that had no reason, and those that are gone though others came after them. After the last file."""
        for attempts in self._attempts.values():
            self.superseded += len(attempts) - 1
            solved: int | None = None
            highest = max(attempts.values(), key=lambda known: known.row.attempt)
            if (gaps := highest.row.attempt - sum(number >= 1 for number in attempts)) > 0:
                what = f"{gaps} of the attempts before it are not here"
                yield Fault(kind="lost", part=highest.key, episode=named(highest.row), what=what)
            for number, known in sorted(attempts.items()):
                if number < 1 or solved is not None:
                    why = "attempts count from 1" if number < 1 else f"attempt {solved} was solved already"
                    yield Fault(kind="attempt", part=known.key, episode=named(known.row), what=why)
                if known.row.correct and known.row.stop_reason not in REDONE_ON_RESUME:
                    solved = number if solved is None else solved

    def described_otherwise(self) -> Iterator[str]:
        """A line for each thing that episodes say of one task in several ways, and that decides no verdict: what
        `--tasks` names may have changed between two starts."""
        for name, rows in sorted(self._described.items()):
            yield (
                f"{len(rows)} episodes say another {name} of their task than earlier ones, first {named(rows[0])}: the "
                "source of tasks changed between starts, or the store was changed"
            )

    def in_order(self) -> Iterator[list[Row]]:
        """The attempts of each episode."""
        return ([known.row for _, known in sorted(attempts.items())] for attempts in self._attempts.values())

    def missing(self, plans: Mapping[str, Pairs]) -> list[tuple[str, int]]:
        """Planned pairs without a row, sorted."""
        wanted = frozenset[tuple[str, int]]().union(*plans.values())
        return sorted(wanted - self._attempts.keys())

    def unplanned(self, plans: Mapping[str, Pairs]) -> int:
        """Episodes that no plan asks for."""
        return len(self._attempts.keys() - frozenset[tuple[str, int]]().union(*plans.values()))

    def lost(self, plans: Mapping[str, Pairs], starts: Sequence[Start]) -> Iterator[Fault]:
        """Episodes that a start called finished and that are not here."""
        told: set[tuple[str, int]] = set()
        for start in starts:
            plan, shard, left_out = plans.get(start.plan or ""), Shard.of(start.shard), frozenset(start.left_out)
            if start.ending in _STOPPED:
                yield from self._fewer(start, shard)
            if start.ending != "done":
                continue
            if plan is None:
                yield from self._short(start, shard)
                continue
            for pair in sorted(plan - self._attempts.keys() - told):
                if shard.holds(*pair) and pair[0] not in left_out:
                    told.add(pair)
                    what = f"not here, though the start of {start.began_at} on {start.host} ended with all done"
                    yield Fault(kind="lost", episode=f"{pair[0]} sample {pair[1]}", what=what)

    def _fewer(self, start: Start, shard: Shard) -> Iterator[Fault]:
        """Of a start that was stopped numbers alone tell: later ones may add rows, and none takes any away."""
        here = sum(len(attempts) for pair, attempts in self._attempts.items() if shard.holds(*pair))
        told = start.earlier + start.finished
        if here < told:
            whose = f"the start of {start.began_at} ended ({start.ending})"
            yield Fault(kind="lost", what=f"{told} episodes were finished when {whose}, {here} are here")

    def _short(self, start: Start, shard: Shard) -> Iterator[Fault]:
        """Of a start whose plan is gone only numbers are left."""
        here = sum(shard.holds(*pair) for pair in self._attempts) if start.plan else start.planned
        if start.plan and here < start.planned:
            whose = f"the start of {start.began_at}" + ("" if shard.whole else f" as shard {shard}")
            what = f"{start.planned} episodes were done, {here} are here, and its plan is gone"
            yield Fault(kind="lost", part=start.plan, what=f"{whose}: {what}")

    def covers(self, key: str, rows: Iterable[tuple[str, int, int]]) -> Iterator[Fault]:
        """What a part holds, as (task, sample, attempt), that a compaction says it took and that is nowhere else."""
        for task_id, sample, attempt in rows:
            if attempt not in self._attempts.get((task_id, sample), ()):
                what = "the manifest says that this part is compacted, and no final file has the episode"
                episode = f"{task_id} sample {sample} attempt {attempt}"
                yield Fault(kind="compaction", part=key, episode=episode, what=what)

    def gone(self, key: str, rows: Iterable[tuple[str, int, int]]) -> Iterator[Fault]:
        """A part that is not there and of which an index says that it held these rows, where no file has them all."""
        lost = [row for row in rows if row[2] not in self._attempts.get((row[0], row[1]), ())]
        if lost:
            task_id, sample, attempt = lost[0]
            what = f"an index tells of it, it is not there, and no file has {len(lost)} of its episodes"
            yield Fault(kind="index", part=key, episode=f"{task_id} sample {sample} attempt {attempt}", what=what)

    def _latest(self) -> Iterator[_Known]:
        return (attempts[max(attempts)] for attempts in self._attempts.values())

    def _task(self, row: Row, key: str) -> Iterator[Fault]:
        first, where = self._tasks.setdefault(row.task_id, (row.task, key))
        others = list(_differing(first, row.task))
        wrong = [name for name in others if name == "reference_code" or (name in READ_OUT and self.one_version)]
        for name in (name for name in others if name not in (*READ_OUT, "reference_code")):
            self._described.setdefault(name, []).append(row)
        if wrong:
            what = f"its task has another {', '.join(wrong)} than in {where}"
            yield Fault(kind="task", part=key, episode=named(row), what=what)


def _differing(first: bytes, second: bytes) -> Iterator[str]:
    """Names of what two episodes of a task say of it in two ways."""
    if first == second:
        return
    for number, name in enumerate(TASK_FIELDS):
        place = slice(number * MARK_BYTES, (number + 1) * MARK_BYTES)
        if first[place] != second[place] and any(first[place]) and any(second[place]):
            yield name
