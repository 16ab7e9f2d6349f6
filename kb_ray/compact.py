"""`python -m kb_ray.compact STORE`: many small parts into few large files, each attempt of each episode once.

Drops what was written twice and nothing else. Ray Data writes the files, several at a time; the manifest comes
last, so that it can be killed and repeated at any moment. The parts stay; `--delete-parts` removes those that the
manifest says are in the files. Nothing is removed before the files are seen to be what was written, and no final file
whose episodes were not read. One compaction at a time; a run may go on writing parts meanwhile. Knows nothing of what
an episode holds.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from kb_ray.cluster import connect, disconnect, prepare_environment
from kb_ray.command_options import parse_options
from kb_ray.env_vars import load_dotenv
from kb_ray.errors import ConfigError, InfraError, KbRayError, StoreError
from kb_ray.exiting import end
from kb_ray.traces.layout import (
    DAMAGED_PREFIX,
    FINAL_PREFIX,
    MANIFEST_KEY,
    PARTS_PREFIX,
    FinalFile,
    Manifest,
    final_key,
    list_finals,
    list_parts,
)
from kb_ray.traces.reading import Survey, altered, manifest_of, read_file, survey
from kb_ray.traces.resume import read_columns
from kb_ray.traces.schema import SCHEMA
from kb_ray.traces.store import LocalStore, Store, open_store, open_to_read
from kb_ray.traces.views import load_dataset_line

ROWS_PER_FILE = 4000
_ROW_GROUP_ROWS = 500
# Only what readers select on: for a hundred leaf columns min/max would take more than they save.
_STATISTICS = ["episode_id", "task_id", "sample", "attempt", "stop_reason"]

Pieces = list[tuple[str, tuple[int, ...]]]
"""Rows of one final file: (file to read, its 0-based rows)."""
Writer = Callable[[Store, Sequence[Pieces]], list[FinalFile]]


class CompactOptions(BaseModel):
    """Merge a trace store's parts into large files, each attempt of each episode once."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m kb_ray.compact", use_attribute_docstrings=True, frozen=True
    )

    store: CliPositionalArg[str]
    """Folder or s3://bucket/prefix of the run."""
    rows_per_file: int = Field(ROWS_PER_FILE, ge=1)
    """Rows in one file at most: an episode has one for each attempt."""
    delete_parts: bool = False
    """Remove the parts once they are in the files."""
    skip_corrupt: bool = False
    """Leave out files and rows that cannot be read, and name them. Such parts are never removed, such final files are
    made anew from the parts still there, and kept under damaged/."""
    ray_address: str | None = None
    """Ray cluster that writes the files, as host:port; otherwise RAY_ADDRESS, or one started here."""


def compact(
    store: Store,
    *,
    rows_per_file: int = ROWS_PER_FILE,
    delete_parts: bool = False,
    skip_corrupt: bool = False,
    write: Writer | None = None,
) -> Manifest:
    """Write final files for all attempts, then the manifest, and return it. Where nothing is new, it stands.

    `write` makes the files, here and one after the other by default. ConfigError where the store holds no episode
    or is damaged (see `reading.survey`), StoreError where it cannot be read or written.
    """
    manifest = manifest_of(store)
    # Listed first: only what the survey has read may go.
    finals = list_finals(store)
    if manifest is None or not _stands(store, manifest, finals):
        found = survey(store, skip_corrupt=skip_corrupt, everything=True)
        _tell_damage(found, manifest)
        if manifest is None or _adds(found, manifest):
            manifest = _merge(found, manifest, rows_per_file, write or write_here)
    named = frozenset(file.key for file in manifest.files)
    # What an earlier or a killed compaction left: a glob of the folder finds each row once.
    for key in finals:
        if key not in named:
            store.delete(key)
    if isinstance(store, LocalStore):
        store.remove_leftovers()
    if delete_parts:
        for key in manifest.parts:
            store.delete(key)
    return manifest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for unusable input, 1 where the store or Ray fails."""
    try:
        load_dotenv()
        options = parse_options(CompactOptions, sys.argv[1:] if argv is None else argv)
        store = open_to_read(options.store)
        manifest = compact(
            store,
            rows_per_file=options.rows_per_file,
            delete_parts=options.delete_parts,
            skip_corrupt=options.skip_corrupt,
            write=lambda store, plans: write_with_ray(store, plans, options.ray_address),
        )
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    size = sum(file.bytes for file in manifest.files)
    rows = f"{manifest.rows} rows, one for each attempt of an episode,"
    print(f"{rows} in {len(manifest.files)} files, {size / 1e6:.1f} MB, under {store.uri}")
    print(load_dataset_line(store.uri, compacted=True))
    return 0


def write_here(store: Store, plans: Sequence[Pieces]) -> list[FinalFile]:
    """Writes each plan's file, one after the other, in this process."""
    return [write_final(store, index, len(plans), pieces) for index, pieces in enumerate(plans)]


def write_with_ray(store: Store, plans: Sequence[Pieces], address: str | None = None) -> list[FinalFile]:
    """Writes the plans' files by Ray Data, as many at a time as there are CPUs; a single file is written here.

    A file's name holds its content's hash: one that Ray writes again is the same file. InfraError where Ray fails,
    the store's own error where that fails.
    """
    if len(plans) < 2:
        return write_here(store, plans)
    # Before ray is imported: it reads its settings only then.
    prepare_environment()
    import ray

    joined = ray.is_initialized()
    if not joined:
        connect("compact", address)
    try:
        return _by_ray_data(store, plans)
    finally:
        if not joined:
            disconnect()


def write_final(store: Store, index: int, count: int, pieces: Pieces) -> FinalFile:
    """Streams rows into file `index` of `count` and puts it; memory holds it compressed, and one row group."""
    sink, rows = io.BytesIO(), 0
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd", write_statistics=_STATISTICS) as writer:
        for table in _grouped(store, pieces):
            writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
            rows += table.num_rows
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    key = final_key(index, count, digest)
    # A file of that name may be there, and damaged since.
    if not store.put_if_absent(key, data) and store.get(key) != data:
        store.replace(key, data)
    return FinalFile(key=key, rows=rows, bytes=len(data), sha256=digest)


def plan(found: Survey, rows_per_file: int) -> list[Pieces]:
    """The rows that count, in the survey's order, dealt to files of `rows_per_file`, the last one shorter."""
    plans: list[Pieces] = []
    free = 0
    for key, rows in found.rows.items():
        start = 0
        while start < len(rows):
            if free == 0:
                plans.append([])
                free = rows_per_file
            taken = rows[start : start + free]
            plans[-1].append((key, taken))
            start, free = start + len(taken), free - len(taken)
    return plans


def _stands(store: Store, manifest: Manifest, finals: Sequence[str]) -> bool:
    """Whether there is nothing new, nothing that no manifest names, and every file is what was written."""
    known = {*manifest.parts, *(file.key for file in manifest.files)}
    return known.issuperset(list_parts(store)) and known.issuperset(finals) and not altered(store, manifest.files)


def _adds(found: Survey, manifest: Manifest) -> bool:
    """Whether the store holds anything that a manifest's files do not, or not any longer."""
    known = {*manifest.parts, *(file.key for file in manifest.files)}
    new = {key for key in found.files if key.startswith(PARTS_PREFIX)} | set(found.rows)
    return bool(new - known) or any(file.key in known for file in found.damaged)


def _tell_damage(found: Survey, before: Manifest | None) -> None:
    """Names what is damaged, keeps a copy of such final files, and says how much of them is nowhere else."""
    for file in found.damaged:
        print(f"skipped {file.key}: {file.reason}", file=sys.stderr)
        data = found.store.get(file.key) if file.key.startswith(FINAL_PREFIX) else None
        if data is not None:
            copy = DAMAGED_PREFIX + hashlib.sha256(data).hexdigest()[:16] + "-" + file.key.removeprefix(FINAL_PREFIX)
            found.store.put_if_absent(copy, data)
            print(f"kept {file.key} as {copy}", file=sys.stderr)
    known = {*before.parts, *(file.key for file in before.files)} if before else set[str]()
    if before and any(file.key in known for file in found.damaged):
        tables = read_columns(found.store, [key for key in found.files if key in known], ("episode_id",))
        held = {name for _, table in tables for name in table.column("episode_id").to_pylist()}
        if (lost := before.rows - len(held)) > 0:
            print(f"lost: {lost} rows were in the damaged files alone", file=sys.stderr)


def _merge(found: Survey, before: Manifest | None, rows_per_file: int, write: Writer) -> Manifest:
    store = found.store
    known = frozenset(before.parts) if before else frozenset()
    parts = {key for key in list_parts(store) if key in known}
    parts |= {key for key in found.files if key.startswith(PARTS_PREFIX)}
    # Damaged parts, and those with a damaged row, are not in it: they stay, and are named again next time.
    parts -= {file.key for file in found.damaged}
    files = tuple(write(store, plan(found, rows_per_file)))
    manifest = Manifest(
        rows=found.episodes, files=files, parts=tuple(sorted(parts)), created_at=datetime.now(UTC).isoformat()
    )
    # Another compaction would have removed these files as strays, or written a manifest of its own.
    if manifest_of(store) != before or {file.key for file in files} - set(store.list(FINAL_PREFIX)):
        raise StoreError(f"trace store {store.uri}: another compaction ran meanwhile, start this one again")
    if broken := altered(store, files):
        raise StoreError(f"trace store {store.uri}: {broken[0].key}: {broken[0].reason}; nothing was removed")
    store.replace(MANIFEST_KEY, manifest.model_dump_json(indent=2).encode())
    return manifest


def _grouped(store: Store, pieces: Pieces) -> Iterator[pa.Table]:
    held, size = list[pa.Table](), 0
    for table in (table for key, rows in pieces for table in read_file(store, key, rows)):
        held.append(table)
        size += table.num_rows
        if size >= _ROW_GROUP_ROWS:
            joined = pa.concat_tables(held)
            yield joined.slice(0, _ROW_GROUP_ROWS)
            held, size = [joined.slice(_ROW_GROUP_ROWS)], size - _ROW_GROUP_ROWS
    if size:
        yield pa.concat_tables(held)


def _by_ray_data(store: Store, plans: Sequence[Pieces]) -> list[FinalFile]:
    import ray.data
    from ray.exceptions import RayError

    # Importing it has set this logger up: it would tell of every plan.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    work = [{"index": index, "pieces": json.dumps(pieces)} for index, pieces in enumerate(plans)]
    # A local folder is on this node alone. Credentials travel with the work, not in Ray's settings, which it shows.
    settings = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    try:
        written = ray.data.from_items(work, override_num_blocks=len(work)).map(
            _write_row,
            fn_kwargs={"uri": store.uri, "count": len(plans), "settings": settings},
            label_selector=None if "://" in store.uri else here,
        )
        rows = sorted(written.take_all(), key=lambda row: int(row["index"]))
    except RayError as error:
        reason = " ".join(str(error).split())[-300:]
        raise InfraError(f"Ray could not write the files of {store.uri}: {reason}; start again") from error
    if failures := [row["failure"] for row in rows if row["failure"]]:
        raise StoreError(failures[0])
    return [FinalFile.model_validate_json(row["file"]) for row in rows]


def _write_row(row: dict[str, Any], uri: str, count: int, settings: dict[str, str]) -> dict[str, Any]:
    """One file, in a worker. Our own errors come back as text: Ray would wrap and log them."""
    os.environ.update(settings)
    pieces = [(key, tuple(rows)) for key, rows in json.loads(row["pieces"])]
    try:
        file = write_final(open_store(uri), int(row["index"]), count, pieces)
    except KbRayError as error:
        return {"index": row["index"], "file": "", "failure": str(error)}
    return {"index": row["index"], "file": file.model_dump_json(), "failure": ""}


if __name__ == "__main__":
    end(main)
