"""Sound stores for tests of the check: whole starts of the driver on a folder, with a scripted model and a stand-in
pool; and ways to plant a fault in them. Holds no test."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.bench.protocol import BenchRequest, judged
from kb_ray.records import Episode, Verdict
from kb_ray.tally import Tally
from kb_ray.traces.layout import list_parts, part_key
from kb_ray.traces.plans import write_plan
from kb_ray.traces.run import RunInfo, episode_id, fingerprint, open_run
from kb_ray.traces.schema import SCHEMA, encode, episode_to_row, row_to_episode, table_of
from kb_ray.traces.store import Store
from kb_ray.traces.views import episodes
from kb_ray.watching.presence import Presence
from kb_ray.wording import wording
from tests.unit.drive_stand_ins import BAD, GOOD, Bench, StandInPool, WatchedModel, script, task

IDENTITY = {"turns": 3, "target-speedup": 1.0, "model": "scripted"}
RUN = RunInfo(
    run_id="run", fingerprint=fingerprint(IDENTITY), identity=IDENTITY, config={}, versions={"wording": wording()},
    created_at="2026-01-02T03:04:05+00:00",
)  # fmt: skip


class JudgingPool(StandInPool):
    """Its verdicts count tests and say what they are about, as those of the bench do."""

    async def evaluate(self, request: BenchRequest) -> Verdict:
        verdict = await super().evaluate(request)
        about = judged(request.task, request.kernel_code)
        passed = 5 if verdict.correct else 0
        return verdict.model_copy(update={"tests_passed": passed, "tests_total": 5, "judged": about})


async def sound_store(
    folder: Path, count: int = 6, *, planned: int | None = None, ending: str | None = "done"
) -> Store:
    """A store of `count` finished episodes, wrong, without code and right in three turns, of `planned` ones."""
    folder.mkdir(parents=True, exist_ok=True)
    model = WatchedModel(script(folder, BAD, "I cannot.", GOOD))
    bench = Bench(folder, model, JudgingPool(), fingerprint=RUN.fingerprint, multi_turn=True, max_turns=3)
    open_run(bench.store, RUN)
    plan = write_plan(bench.store, [(task(i).task_id, 0) for i in range(planned or count)])
    await bench.run(count)
    presence = Presence(bench.store, "run", Tally(total=count, earlier=0, started=0.0), about={"plan": plan})
    presence.end(ending or "signal")
    return bench.store


def change_episode(store: Store, change: Callable[[Episode], Episode]) -> str:
    """Puts the first episode of the first part back changed, in a part that is whole; the part's new key."""
    key = list_parts(store)[0]
    first, *rest = _episodes(store, key)
    store.delete(key)
    return _put(store, encode(table_of([change(first), *rest])))


def change_row(store: Store, change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    """The same for the row, whose columns then need not agree."""
    key = list_parts(store)[0]
    first, *rest = map(episode_to_row, _episodes(store, key))
    store.delete(key)
    return _put(store, encode(pa.Table.from_pylist([change(first), *rest], schema=SCHEMA)))


def add(store: Store, change: Callable[[Episode], Episode]) -> str:
    """One more part, with the first episode changed."""
    return _put(store, encode(table_of([change(next(episodes(store)))])))


def keep_only(store: Store, wanted: Callable[[Episode], bool]) -> None:
    """Every part again, without the episodes that are not wanted."""
    for key in list_parts(store):
        kept = [episode for episode in _episodes(store, key) if wanted(episode)]
        store.delete(key)
        _put(store, encode(table_of(kept)))


def write_raw(store: Store, table: pa.Table) -> str:
    """A part with a table of any schema."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return _put(store, sink.getvalue())


def first_table(store: Store) -> pa.Table:
    data = store.get(list_parts(store)[0])
    assert data is not None
    return pq.read_table(io.BytesIO(data))


def renamed(episode: Episode, **changes: Any) -> Episode:
    """The episode as another attempt or sample, with the id that goes with it."""
    other = episode.model_copy(update=changes)
    identity = episode_id(other.task.task_id, other.sample, other.attempt, RUN.fingerprint)
    return other.model_copy(update={"episode_id": identity})


def _episodes(store: Store, key: str) -> list[Episode]:
    data = store.get(key)
    assert data is not None
    return [row_to_episode(row) for row in pq.read_table(io.BytesIO(data)).to_pylist()]


def _put(store: Store, data: bytes) -> str:
    key = part_key(data)
    store.put_if_absent(key, data)
    return key
