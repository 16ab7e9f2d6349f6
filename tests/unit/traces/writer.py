"""A process to be killed: `python writer.py URI TOTAL FLUSH_EVERY` writes the episodes that the store lacks.

Prints `saved N` after each flush, where samples below N that were missing at the start are safe, then `done`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from kb_ray.traces.resume import finished
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import open_store
from tests.unit.traces.examples import make_episode


def main(uri: str, total: int, flush_every: int) -> None:
    store = open_store(uri)
    known = finished(store)
    task_id = make_episode().task.task_id
    sink = TraceSink(store, save_interval=flush_every)
    for sample in range(total):
        if (task_id, sample) not in known:
            sink.add(make_episode(sample=sample, text=os.urandom(4096).hex()))
        if (sample + 1) % flush_every == 0:
            sink.flush()
            print(f"saved {sample + 1}", flush=True)
    sink.close()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
