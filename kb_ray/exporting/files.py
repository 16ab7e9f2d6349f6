"""Files of an export: rows to Parquet shards or a JSON array, a part at a time, under a folder that appears whole.

An export is known by its card and by the names of its files; a folder that holds anything else is never replaced.
Knows neither views nor traces.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.errors import ConfigError

SHARD_BYTES = 256 * 1024**2
"""Compressed size after which the next shard begins."""
_GROUP_ROWS = 500
_GROUP_BYTES = 32 * 1024**2
_BATCH_ROWS = 50
CARD = "README.md"
_CARD_MARK = re.compile(r"\A---\n(?:.*\n)*?- kb-ray-\w+\n", re.MULTILINE)
"""The head of a card with its tag, `kb-ray-VIEW`."""
_OWN_FILES = re.compile(
    r"README\.md|data/train-\d{5}-of-\d{5}\.parquet|reasoning_traces(_multiturn)?\.json|"
    r"(level\d+/)?level_\d+_problem_\d+_sample_\d+_kernel\.py"
)
_OWN_FOLDERS = re.compile(r"data|level\d+")
_JUDGEMENTS = re.compile(r"(level\d+/)?(eval_results|pass_at_k_results)\.json")
"""What KernelBench's evaluation writes beside the kernels: hours of a GPU."""


@contextmanager
def appearing(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """An empty folder to write in, which becomes `folder` at the end; after an error nothing is left of it.

    ConfigError where `folder` holds something and may not be overwritten, or cannot be written.
    """
    folder = folder.absolute()
    check(folder, overwrite=overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"--output {folder}: {error.strerror or error}") from error
    try:
        yield scratch
        # mkdtemp makes folders for their owner alone.
        scratch.chmod(0o755)
        # Something may have come there meanwhile.
        check(folder, overwrite=overwrite)
        _replace(scratch, folder)
    except OSError as error:
        raise ConfigError(f"--output {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check(folder: Path, *, overwrite: bool) -> None:
    """ConfigError where `folder` is a file, or holds something and may not be overwritten.

    Only what an export wrote may be: a card, and beside it no file but an export's.
    """
    if folder.is_file():
        raise ConfigError(f"--output {folder}: it is a file, name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise ConfigError(f"--output {folder}: it holds something, name another or add --overwrite")
    if foreign := _foreign(folder):
        raise ConfigError(
            f"--output {folder}: {foreign}, and --overwrite replaces an earlier export alone; name another folder"
        )


def is_own(name: str) -> bool:
    """Whether an export of any view gives a file this name, a path with `/` relative to its folder."""
    return _OWN_FILES.fullmatch(name) is not None


def apart(folder: Path, store: str) -> None:
    """ConfigError where `folder` is a local store (its absolute path; a URI of another kind is none), holds it, or
    lies in it."""
    if "://" in store:
        return
    output, traces = folder.resolve(), Path(store).resolve()
    if output == traces or output in traces.parents or traces in output.parents:
        raise ConfigError(f"--output {folder}: it is, holds or lies in the trace store {store}, name a folder apart")


def write_parquet(rows: Iterable[dict[str, Any]], schema: pa.Schema, folder: Path) -> int:
    """Rows as `train-00000-of-0000N.parquet` (zstd) in `folder`, which is made; how many there were.

    Holds one row group: 500 rows or 32 MiB. No file where there is no row.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count, shards, writer = 0, list[Path](), None
    try:
        for table in _groups(rows, schema):
            if writer is None:
                shards.append(folder / f"shard-{len(shards):05d}")
                file = shards[-1].open("wb")
                writer = pq.ParquetWriter(file, schema, compression="zstd")
            writer.write_table(table, row_group_size=table.num_rows)
            count += table.num_rows
            if file.tell() >= SHARD_BYTES:
                writer, _ = _closed(writer, file)
    finally:
        if writer is not None:
            _closed(writer, file)
    for index, shard in enumerate(shards):
        shard.rename(folder / f"train-{index:05d}-of-{len(shards):05d}.parquet")
    return count


def write_json(rows: Iterable[dict[str, Any]], path: Path) -> int:
    """Rows as one JSON array, as `json.dump(..., indent=2)` writes it; how many there were."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(",\n" if count else "[\n")
            file.write("\n".join("  " + line for line in json.dumps(row, indent=2).split("\n")))
            count += 1
        file.write("\n]" if count else "[]")
    return count


def write_texts(rows: Iterable[dict[str, Any]], folder: Path) -> int:
    """Each row's `text` as a file of its name in `folder`; how many there were."""
    count = 0
    for row in rows:
        path = folder / row["file"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(row["text"], encoding="utf-8")
        count += 1
    return count


def _foreign(folder: Path) -> str:
    """What speaks against a folder being an export and nothing else; empty where nothing does."""
    try:
        if _CARD_MARK.match((folder / CARD).read_text(encoding="utf-8")) is None:
            return f"its {CARD} is not the card of an export"
    except (OSError, ValueError):
        return f"it holds no {CARD} of an export"
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_symlink() and _JUDGEMENTS.fullmatch(name):
            return f"it holds {name} of KernelBench's evaluation, which would be lost: move that away"
        own = _OWN_FOLDERS.fullmatch(name) if path.is_dir() else is_own(name)
        if path.is_symlink() or not own:
            return f"it holds {name}"
    return ""


def _closed(writer: pq.ParquetWriter, file: Any) -> tuple[None, None]:
    writer.close()
    file.close()
    return None, None


def _groups(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Tables of up to 500 rows or about 32 MiB; rows become Arrow's soon, which takes a fraction of the memory."""
    held, batch = list[pa.RecordBatch](), list[dict[str, Any]]()
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH_ROWS:
            held.append(pa.RecordBatch.from_pylist(batch, schema=schema))
            batch = []
            if sum(b.num_rows for b in held) >= _GROUP_ROWS or sum(b.nbytes for b in held) >= _GROUP_BYTES:
                yield pa.Table.from_batches(held)
                held = []
    if batch:
        held.append(pa.RecordBatch.from_pylist(batch, schema=schema))
    if held:
        yield pa.Table.from_batches(held)


def _replace(scratch: Path, folder: Path) -> None:
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
    try:
        if folder.exists():
            os.rename(folder, old / "was")
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(old, ignore_errors=True)
