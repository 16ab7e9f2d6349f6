"""`python -m kb_ray.compact STORE`: many small parts into few large files, each episode once.

Keeps of every (task, sample) its highest attempt. The parts stay, so that it can be stopped and repeated at
any moment; `--delete-parts` removes those that the manifest says are in the files. One compaction at a time;
a run may go on writing parts meanwhile. Knows nothing of what an episode holds.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import CliApp, CliPositionalArg, SettingsConfigDict, SettingsError

from kb_ray.errors import ConfigError, KbRayError
from kb_ray.traces.layout import (
    FINAL_PREFIX,
    MANIFEST_KEY,
    FinalFile,
    Manifest,
    final_key,
    list_parts,
    read_manifest,
)
from kb_ray.traces.resume import latest_rows, read_rows
from kb_ray.traces.schema import conform, encode
from kb_ray.traces.store import Store, open_store
from kb_ray.traces.views import load_dataset_line

ROWS_PER_FILE = 4000


class CompactOptions(BaseModel):
    """Merge a trace store's parts into large files, each episode once, in its highest attempt."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m kb_ray.compact", use_attribute_docstrings=True, frozen=True
    )

    store: CliPositionalArg[str]
    """Folder or s3://bucket/prefix of the run."""
    rows_per_file: int = Field(ROWS_PER_FILE, ge=1)
    """Episodes in one file at most."""
    delete_parts: bool = False
    """Remove the parts once they are in the files."""


def compact(store: Store, *, rows_per_file: int = ROWS_PER_FILE, delete_parts: bool = False) -> Manifest:
    """Write final files for all episodes, then the manifest, and return it. Where nothing is new, it stands.

    ConfigError where the store holds no episode, StoreError where it cannot be read or written.
    """
    parts = list_parts(store)
    manifest = read_manifest(store)
    compacted = frozenset(manifest.parts) if manifest else frozenset()
    newer = [key for key in parts if key not in compacted]
    if manifest is None or newer:
        files = [file.key for file in manifest.files] if manifest else []
        manifest = _merge(store, files + newer, parts, rows_per_file)
    _delete_but(store, FINAL_PREFIX, frozenset(file.key for file in manifest.files))
    if delete_parts:
        for key in manifest.parts:
            store.delete(key)
    return manifest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for unusable input, 1 where the store fails."""
    try:
        options = _options(sys.argv[1:] if argv is None else argv)
        store = open_store(options.store)
        manifest = compact(store, rows_per_file=options.rows_per_file, delete_parts=options.delete_parts)
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    size = sum(file.bytes for file in manifest.files)
    print(f"{manifest.rows} episodes in {len(manifest.files)} files, {size / 1e6:.1f} MB, under {store.uri}")
    print(load_dataset_line(store.uri, compacted=True))
    return 0


def _options(argv: Sequence[str]) -> CompactOptions:
    try:
        return CliApp.run(CompactOptions, cli_args=list(argv), cli_exit_on_error=False)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"{told}; see --help") from None
    except SettingsError as error:
        raise ConfigError(f"{error}; see --help") from None


def _merge(store: Store, keys: Sequence[str], parts: Sequence[str], rows_per_file: int) -> Manifest:
    chosen: dict[str, list[int]] = {}
    latest = latest_rows(store, keys)
    if not latest:
        raise ConfigError(f"trace store {store.uri}: no episodes here, name the --output of a run")
    for episode in latest.values():
        chosen.setdefault(episode.key, []).append(episode.row)
    wanted = [key for key in keys if key in chosen]
    tables = (conform(table.take(sorted(chosen[key]))) for key, table in read_rows(store, wanted))
    count = -(-len(latest) // rows_per_file)
    files = tuple(
        _write_final(store, index, count, table) for index, table in enumerate(_regroup(tables, rows_per_file))
    )
    manifest = Manifest(rows=len(latest), files=files, parts=tuple(parts), created_at=datetime.now(UTC).isoformat())
    store.replace(MANIFEST_KEY, manifest.model_dump_json(indent=2).encode())
    return manifest


def _write_final(store: Store, index: int, count: int, table: pa.Table) -> FinalFile:
    data = encode(table)
    digest = hashlib.sha256(data).hexdigest()
    key = final_key(index, count, digest)
    store.put_if_absent(key, data)
    return FinalFile(key=key, rows=table.num_rows, bytes=len(data), sha256=digest)


def _regroup(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in the same order, in tables of exactly `rows`, the last one shorter."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.num_rows
        while size >= rows:
            joined = pa.concat_tables(held)
            yield joined.slice(0, rows)
            held, size = [joined.slice(rows)], size - rows
    if size:
        yield pa.concat_tables(held)


def _delete_but(store: Store, prefix: str, kept: frozenset[str]) -> None:
    """Remove what an earlier or a killed compaction left: a glob of the folder finds each row once."""
    for key in store.list(prefix):
        if key not in kept:
            store.delete(key)


if __name__ == "__main__":
    sys.exit(main())
