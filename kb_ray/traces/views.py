"""Ways to read a trace store: as Episodes in Python, and as the line that loads it with `datasets`.

Reads only. Does not import `datasets`: the line is for people to paste.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from kb_ray.errors import StoreError
from kb_ray.records import Episode
from kb_ray.traces.layout import FINAL_PREFIX, PARTS_PREFIX, list_parts, read_manifest
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


def reading_line(store: Store) -> str:
    """How to load all rows of a store as it is now, each once: `load_dataset_line`, or first a compaction.

    Where some parts are in a compaction's files and still there, and others are not in them, no pattern finds each row
    once. A store that does not answer is told as one that was never compacted.
    """
    try:
        # Parts first, as all readers do: a compaction deletes them after its manifest is there.
        parts, manifest = list_parts(store), read_manifest(store)
    except StoreError:
        return load_dataset_line(store.uri)
    if manifest is None:
        return load_dataset_line(store.uri)
    compacted = frozenset(manifest.parts)
    if compacted.issuperset(parts):
        return load_dataset_line(store.uri, compacted=True)
    if compacted.isdisjoint(parts):
        return _line(store.uri, (FINAL_PREFIX, PARTS_PREFIX))
    return f"the line that `python -m kb_ray.compact {shlex.quote(store.uri)}` prints: some parts are compacted already"


def load_dataset_line(uri: str, *, compacted: bool = False, endpoint_url: str | None = None) -> str:
    """The exact Python expression that loads a store's rows as a dataset.

    From the parts, superseded attempts included, or from a compaction's files. For S3 it names the endpoint
    where there is one; credentials are taken from the reader's own AWS settings.
    """
    return _line(uri, (FINAL_PREFIX if compacted else PARTS_PREFIX,), endpoint_url)


def _line(uri: str, folders: Sequence[str], endpoint_url: str | None = None) -> str:
    patterns = [f"{uri.rstrip('/')}/{folder}*.parquet" for folder in folders]
    files = patterns[0] if len(patterns) == 1 else patterns
    arguments = ['"parquet"', f"data_files={files!r}", 'split="train"']
    if uri.startswith("s3://"):
        endpoint = endpoint_url or endpoint_from_environment()
        if endpoint:
            arguments.append(f'storage_options={{"client_kwargs": {{"endpoint_url": {endpoint!r}}}}}')
        arguments.append("streaming=True")
    return f"datasets.load_dataset({', '.join(arguments)})"
