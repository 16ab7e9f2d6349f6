"""What lies where in a trace store: key names, the manifest of a compaction, and which files count.

    run.json                  what the run is (create-only)
    parts/part-*.parquet      one flush each, never changed
    final/train-*.parquet     the compaction's files
    _manifest.json            written last: which final files count, and which parts are in them
    damaged/                  copies of final files that a compaction found damaged and made anew; nobody reads them

Knows key names, nothing of what rows hold.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

from pydantic import ValidationError

from kb_ray.errors import StoreError
from kb_ray.records import Record
from kb_ray.traces.columns import SCHEMA_VERSION
from kb_ray.traces.store import Store

RUN_KEY = "run.json"
MANIFEST_KEY = "_manifest.json"
PARTS_PREFIX = "parts/"
FINAL_PREFIX = "final/"
DAMAGED_PREFIX = "damaged/"


class FinalFile(Record):
    """One file of a compaction."""

    key: str
    rows: int
    bytes: int
    sha256: str


class Manifest(Record):
    """What a compaction made."""

    schema_version: int = SCHEMA_VERSION
    rows: int
    files: tuple[FinalFile, ...]
    parts: tuple[str, ...]
    """Keys of the parts whose episodes are in `files`; readers skip them."""
    created_at: str


def part_key(data: bytes, now: datetime | None = None) -> str:
    """The key of a part: its time, so that keys sort by age, and its content's hash."""
    now = now or datetime.now(UTC)
    return f"{PARTS_PREFIX}part-{now:%Y%m%dT%H%M%S%fZ}-{_short_hash(data)}.parquet"


def final_key(index: int, count: int, data_sha256: str) -> str:
    """The key of a compacted file; the hash lets a later compaction stand beside an earlier one."""
    return f"{FINAL_PREFIX}train-{index:05d}-of-{count:05d}-{data_sha256[:16]}.parquet"


def read_manifest(store: Store) -> Manifest | None:
    """The manifest, None where nothing was compacted. StoreError where it cannot be understood."""
    data = store.get(MANIFEST_KEY)
    if data is None:
        return None
    try:
        content = json.loads(data)
        version = content.get("schema_version") if isinstance(content, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise StoreError(
                f"trace store {store.uri}: {MANIFEST_KEY} has schema version {version}, this kb_ray reads up to "
                f"{SCHEMA_VERSION}: upgrade kb_ray"
            )
        return Manifest.model_validate(content)
    except (ValidationError, ValueError, RecursionError) as error:
        raise StoreError(
            f"trace store {store.uri}: {MANIFEST_KEY} is damaged; remove it and compact again: "
            "without it every file of final/ and parts/ counts"
        ) from error


def list_parts(store: Store) -> list[str]:
    """Keys of all parts, oldest first, compacted or not."""
    return [key for key in store.list(PARTS_PREFIX) if key.endswith(".parquet")]


def list_finals(store: Store) -> list[str]:
    """Keys of all files of compactions, those that no manifest names included."""
    return [key for key in store.list(FINAL_PREFIX) if key.endswith(".parquet")]


def sources(store: Store) -> list[str]:
    """Keys of the files that hold the episodes: the manifest's, then the parts newer than it.

    Without a manifest all parts, then all final files: an episode may be in several of them.
    """
    # Parts before manifest: a compaction that deletes parts between the two reads has written its manifest.
    parts = list_parts(store)
    manifest = read_manifest(store)
    if manifest is None:
        return parts + list_finals(store)
    compacted = frozenset(manifest.parts)
    return [file.key for file in manifest.files] + [key for key in parts if key not in compacted]


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
