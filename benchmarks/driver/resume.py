"""How long a start takes to find out what a large store holds already, and how much memory that is.

The store is made of one real episode whose names are changed: many small parts, as runs write them. Reading is timed in
a process of its own, by the functions that a start uses; then a run is started on the store, which has a few episodes
left to do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.driver.runs import ROOT, SAMPLES_PER_TASK, Setting, run
from kb_ray.records import Episode
from kb_ray.traces.layout import part_key
from kb_ray.traces.part_index import INDEX_PREFIX, PARTS_PER_INDEX, write_index
from kb_ray.traces.schema import encode, table_of
from kb_ray.traces.store import Store, open_store

_LEFT = 64
"""Episodes that the started run finds undone."""

_READ = """
import json, resource, sys, time
began = time.monotonic()
from kb_ray.preflight import remaining
from kb_ray.ready import files_of, finished_in
from kb_ray.traces.store import open_store
imported = time.monotonic()
store = open_store(sys.argv[1])
files, done = files_of(store), finished_in(store)
read = time.monotonic()
print(json.dumps({"episodes": len(done), "files": len(files), "import_s": imported - began, "read_s": read - imported,
                  "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def fill(uri: str, episode: Episode, count: int, per_part: int, *, indexed: bool = True) -> float:
    """A store of `count` episodes like this one, with the indexes that a run writes; the seconds it took."""
    store, began = open_store(uri), time.monotonic()
    table = table_of([episode] * per_part)
    held: list[tuple[str, pa.Table]] = []
    for first in range(0, count, per_part):
        held.append(_put(store, table, first, min(per_part, count - first)))
        if indexed and len(held) == PARTS_PER_INDEX:
            write_index(store, held)
            held = []
    return time.monotonic() - began


def _put(store: Store, table: pa.Table, first: int, rows: int) -> tuple[str, pa.Table]:
    numbers = range(first, first + rows)
    columns: dict[str, list[Any]] = {
        "episode_id": [f"{number:032x}" for number in numbers],
        "task_id": [f"file/t{number // SAMPLES_PER_TASK:06d}" for number in numbers],
        "sample": [number % SAMPLES_PER_TASK for number in numbers],
    }
    part = table.slice(0, rows)
    for name, values in columns.items():
        place = part.schema.get_field_index(name)
        field = part.schema.field(place)
        part = part.set_column(place, field, pa.array(values, field.type))
    data = encode(part)
    key = part_key(data)
    store.put_if_absent(key, data)
    return key, part


def measure(uri: str) -> dict[str, Any]:
    """Seconds and memory of looking at the store, in a new process."""
    done = subprocess.run([sys.executable, "-c", _READ, uri], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def started(folder: Path, uri: str, count: int) -> dict[str, Any]:
    """Seconds from the command to the first question of a real run on the store, Ray's start included."""
    traces = run(Setting(count + _LEFT, actors=2, replicas=1, slots=8, model_s=0.1, bench_s=0.1), folder, uri)
    first = next(row for row in traces.samples if row["generating"] or row["finished"])
    written = traces.samples[-1]["finished"]
    # Whole tasks: the last one's samples too.
    left = -(-(count + _LEFT) // SAMPLES_PER_TASK) * SAMPLES_PER_TASK - count
    if written != left:
        raise RuntimeError(f"a start on {count} episodes with {left} to do did {written}")
    return {"start_s": first["t"] - traces.began}


def resumed(uri: str, episode: Episode, count: int, per_part: int) -> dict[str, Any]:
    """Makes the store and measures it."""
    made_s = fill(uri, episode, count, per_part)
    return {"per_part": per_part, "made_s": made_s, **measure(uri)}


def without_index(uri: str) -> dict[str, Any]:
    """Seconds of looking at the store once its indexes are gone."""
    store = open_store(uri)
    for key in store.list(INDEX_PREFIX):
        store.delete(key)
    return {"without_index_s": measure(uri)["read_s"]}
