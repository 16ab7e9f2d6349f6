"""Ways to read a trace store: as Episodes in Python, and as the line that loads it with `datasets`.

Reads only. Does not import `datasets`: the line is for people to paste.
"""

from __future__ import annotations

from collections.abc import Iterator

from kb_ray.records import Episode
from kb_ray.traces.layout import FINAL_PREFIX, PARTS_PREFIX
from kb_ray.traces.resume import finished, read_rows
from kb_ray.traces.schema import conform, row_to_episode
from kb_ray.traces.store import Store, endpoint_from_environment


def episodes(store: Store) -> Iterator[Episode]:
    """Every episode of the store, once, each (task, sample) in its highest attempt, oldest file first.

    Holds a few files in memory at a time. StoreError where a file cannot be read.
    """
    rows: dict[str, list[int]] = {}
    for episode in finished(store).values():
        rows.setdefault(episode.key, []).append(episode.row)
    for key, table in read_rows(store, sorted(rows)):
        wanted = conform(table.take(sorted(rows[key])))
        for batch in wanted.to_batches(max_chunksize=64):
            yield from map(row_to_episode, batch.to_pylist())


def load_dataset_line(uri: str, *, compacted: bool = False, endpoint_url: str | None = None) -> str:
    """The exact Python expression that loads a store's rows as a dataset.

    From the parts, superseded attempts included, or from a compaction's files. For S3 it names the endpoint
    where there is one; credentials are taken from the reader's own AWS settings.
    """
    folder = FINAL_PREFIX if compacted else PARTS_PREFIX
    arguments = ['"parquet"', f"data_files={uri.rstrip('/') + '/' + folder + '*.parquet'!r}", 'split="train"']
    if uri.startswith("s3://"):
        endpoint = endpoint_url or endpoint_from_environment()
        if endpoint:
            arguments.append(f'storage_options={{"client_kwargs": {{"endpoint_url": {endpoint!r}}}}}')
        arguments.append("streaming=True")
    return f"datasets.load_dataset({', '.join(arguments)})"
