"""Checkpoints of training: one layout, in a folder or on S3, and one function that finds the latest.

    checkpoints/step000012/adapter/...       the adapter, as PEFT writes it, with its tokenizer
    checkpoints/step000012/state.pt          optimizer and random states
    checkpoints/step000012/checkpoint.json   last, and once: with it the checkpoint exists

Whoever trains, resumes, evaluates or serves asks `latest` or `adapter_folder`, so that none can look in another place
than training wrote. Knows files and their hashes, no model.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from kb_ray.base_models import config_hashes
from kb_ray.errors import ConfigError, StoreError
from kb_ray.records import Record
from kb_ray.traces.store import LocalStore, Store, open_store

FOLDER = "checkpoints"
ADAPTER, STATE, MARK = "adapter", "state.pt", "checkpoint.json"
_STEP = re.compile(rf"{FOLDER}/step(\d{{6,}})/{re.escape(MARK)}")
_WITHIN = re.compile(rf"{FOLDER}/step(\d{{6,}})/")
_BELOW_RUN = re.compile(rf"(.+?)/{FOLDER}/step(\d{{6,}})(?:/{ADAPTER})?/*")
_REMEDY = "remove that checkpoint to go on from the one before"


class FileMark(Record):
    """What a file of a checkpoint must be."""

    size: int
    sha256: str


class Checkpoint(Record):
    """What `checkpoint.json` says."""

    step: int
    """Optimizer steps taken."""
    base_model: str
    """Folder or name of the model that the adapter is for."""
    base_hash: str | None = None
    """Of the base model's configuration, where it could be read: a folder may have moved."""
    base_weights: dict[str, str] = Field(default_factory=dict)
    """Fingerprints of the base model's weights, by part; empty where they are at a service, or nobody took them yet."""
    fingerprint: str
    """Of the settings that decide what is learned."""
    progress: dict[str, Any] = Field(default_factory=dict)
    """Where the run was: curriculum, data, random state. JSON."""
    files: dict[str, FileMark] = Field(default_factory=dict)
    """By name within the checkpoint, `checkpoint.json` excepted."""
    created_at: str = ""


class Loaded(NamedTuple):
    """A checkpoint with its files, all of them checked."""

    checkpoint: Checkpoint
    files: dict[str, bytes]


def save(store: Store, checkpoint: Checkpoint, files: Mapping[str, bytes]) -> Checkpoint:
    """Write a checkpoint; returns it as it was written. Killed at any moment it is there whole or not at all.

    `files`: by name within the checkpoint, such as `adapter/adapter_model.safetensors`. Of a step that is there already
    the files are left as they are; where the run has moved on without a step, only `progress` is written again.
    """
    marks = {name: FileMark(size=len(data), sha256=_hash(data)) for name, data in files.items()}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    whole = checkpoint.model_copy(update={"files": marks, "created_at": now})
    if store.get(_key(whole.step, MARK)) is not None:
        return _moved_on(store, whole)
    for name, data in files.items():
        # What a killed try left under this name is no part of any checkpoint.
        store.replace(_key(whole.step, name), data)
    store.put_if_absent(_key(whole.step, MARK), whole.model_dump_json(indent=1).encode())
    return whole


def _moved_on(store: Store, whole: Checkpoint) -> Checkpoint:
    there = read(store, whole.step)
    if there.fingerprint != whole.fingerprint or there.progress == whole.progress:
        return there
    moved = there.model_copy(update={"progress": whole.progress, "created_at": whole.created_at})
    store.replace(_key(whole.step, MARK), moved.model_dump_json(indent=1).encode())
    return moved


def steps(store: Store) -> list[int]:
    """Steps with a checkpoint, ascending."""
    found = (_STEP.fullmatch(key) for key in store.list(f"{FOLDER}/"))
    return sorted(int(match[1]) for match in found if match)


def latest(store: Store) -> Checkpoint | None:
    """The checkpoint of the highest step; None where there is none."""
    found = steps(store)
    return read(store, found[-1]) if found else None


def read(store: Store, step: int) -> Checkpoint:
    """What is said of a checkpoint. StoreError where there is none or it makes no sense."""
    data = store.get(_key(step, MARK))
    if data is None:
        raise StoreError(f"{store.uri} has no checkpoint of step {step}: it has {steps(store) or 'none'}")
    try:
        return Checkpoint.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise StoreError(f"{store.uri}/{_key(step, MARK)} is damaged: {first['msg']}; {_REMEDY}") from error


def load(store: Store, step: int, within: str = "") -> Loaded:
    """A checkpoint with its files, or those whose names begin with `within`; StoreError where one is missing or is not
    what was written."""
    found = read(store, step)
    wanted = {name: mark for name, mark in found.files.items() if name.startswith(within)}
    return Loaded(found, {name: _checked(store, step, name, mark) for name, mark in wanted.items()})


def copy_adapter(store: Store, checkpoint: Checkpoint, to: Store) -> None:
    """The adapter of a checkpoint into another store, of the same layout: its files, then what is said of them.

    StoreError where a file is missing in `store` or is not what was written.
    """
    for name, mark in checkpoint.files.items():
        if name.startswith(f"{ADAPTER}/"):
            to.replace(_key(checkpoint.step, name), _checked(store, checkpoint.step, name, mark))
    to.replace(_key(checkpoint.step, MARK), checkpoint.model_dump_json(indent=1).encode())


def step_of(path: str) -> tuple[str, int | None]:
    """(a run's folder or URL, the step of its checkpoint that `path` names; None where it names none)."""
    match = _BELOW_RUN.fullmatch(path)
    return (path.rstrip("/"), None) if match is None else (match[1], int(match[2]))


def adapter_folder(path: str | Path) -> Path:
    """The folder of an adapter or model: `path` itself, or that of its latest checkpoint where it is a run's folder."""
    folder = Path(os.path.expanduser(path))
    if not (folder / FOLDER).is_dir():
        return folder / ADAPTER if (folder / MARK).is_file() else folder
    found = steps(open_store(str(folder)))
    return folder / FOLDER / _named(found[-1]) / ADAPTER if found else folder


def check_adapter(folder: Path) -> Checkpoint | None:
    """What is said of the checkpoint that the adapter in `folder` belongs to; None for one that no run of ours wrote.

    ConfigError, in one line, where a file of it is missing or not what was written, or nothing is said of it.
    """
    folder = Path(os.path.expanduser(folder)).resolve()
    mark = folder.parent / MARK
    if folder.name != ADAPTER:
        return None
    if not mark.is_file():
        if _STEP.fullmatch("/".join((*folder.parts[-3:-1], MARK))):
            raise ConfigError(f"{folder} was not written to its end, or is being removed: {mark.name} is missing")
        return None
    found = told(mark)
    for name, wanted in found.files.items():
        if not name.startswith(f"{ADAPTER}/"):
            continue
        file = folder.parent / name
        if not file.is_file() or FileMark(size=file.stat().st_size, sha256=_hash(file.read_bytes())) != wanted:
            state = "not what the run wrote" if file.is_file() else "missing"
            raise ConfigError(f"{file} is {state}: copy the checkpoint again, or name another")
    return found


def told(mark: Path) -> Checkpoint:
    """What a checkpoint's `checkpoint.json` says; ConfigError where it cannot be read."""
    try:
        return Checkpoint.model_validate_json(mark.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{mark} is damaged: {str(error).splitlines()[0]}; name another checkpoint") from error


def base_hash(model: str) -> str | None:
    """Of what a model folder's config.json says that the model computes, however the folder is called and whoever wrote
    the file; None for a name on the hub."""
    return next(iter(config_hashes(model)), None)


def differing_base(checkpoint: Checkpoint, base_model: str, base_weights: Mapping[str, str]) -> str | None:
    """What is another in the base model that is there than in a checkpoint's; None where it is the same.

    `base_weights`: fingerprints of the one that is there, as far as they are known. Where a part of the `weights` is
    known of both they decide alone, as versions write one model's configuration differently. Else `config.json` does,
    where it is known of both; by their `name` they are told apart only where neither is: a model may lie anywhere.
    """
    shared = checkpoint.base_weights.keys() & base_weights.keys()
    if shared:
        return "weights" if any(checkpoint.base_weights[part] != base_weights[part] for part in shared) else None
    hashes = config_hashes(base_model)
    if checkpoint.base_hash is not None and hashes:
        return None if checkpoint.base_hash in hashes else "config.json"
    return None if checkpoint.base_model == base_model else "name"


def refuse_other_base(checkpoint: Checkpoint, base_model: str, base_weights: Mapping[str, str] | None = None) -> None:
    """ConfigError where a checkpoint is of another base model than the one that is there."""
    differs = differing_base(checkpoint, base_model, base_weights or {})
    if differs is not None:
        there = base_model if base_model != checkpoint.base_model else f"the model that lies there now ({differs})"
        raise ConfigError(
            f"the checkpoint of step {checkpoint.step} was trained on {checkpoint.base_model}, not on {there}: "
            "give that model, or another output for a new run"
        )


def prune(store: Store, keep: int) -> list[int]:
    """Remove all but the last `keep` checkpoints, the mark of each first; the steps removed. For who writes them alone.

    What a killed start left goes too: files below the last checkpoint that no mark goes with, and half-written ones.
    """
    there = store.list(f"{FOLDER}/")
    marked = sorted(int(match[1]) for match in map(_STEP.fullmatch, there) if match)
    removed = marked[:-keep] if keep > 0 else []
    kept = set(marked) - set(removed)
    for step in removed:
        store.delete(_key(step, MARK))
    for key, step in ((key, int(match[1])) for key in there if (match := _WITHIN.match(key))):
        if step not in kept and step < max(kept, default=0):
            store.delete(key)
    if isinstance(store, LocalStore):
        store.remove_leftovers()
    return removed


def _checked(store: Store, step: int, name: str, mark: FileMark) -> bytes:
    data = store.get(_key(step, name))
    if data is None or len(data) != mark.size or _hash(data) != mark.sha256:
        state = "missing" if data is None else "damaged"
        raise StoreError(f"{store.uri}/{_key(step, name)} is {state}: {_REMEDY}")
    return data


def _key(step: int, name: str) -> str:
    return f"{FOLDER}/{_named(step)}/{name}"


def _named(step: int) -> str:
    return f"step{step:06d}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
