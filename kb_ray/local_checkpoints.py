"""A checkpoint by its name, a folder's or s3://'s, as files on this machine: what lies on S3 is copied first.

    ~/.cache/kb_ray/checkpoints/HASH/RUN/checkpoints/step000210/adapter/...     (or in XDG_CACHE_HOME)

A copy has a run's own layout, so that it is found, named and checked as a run's folder is. HASH is over the adapter's
files: other weights are another copy. Whoever evaluates or serves asks here. Loads no model.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PurePath

from kb_ray import checkpoints
from kb_ray.checkpoints import ADAPTER, FOLDER, Checkpoint
from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.store import LocalStore, Store, local_path, open_store

_PLAIN = re.compile(rf"{ADAPTER}/(?!\.)[^/\0]+")
WANTED = "name a training run's output or one of its checkpoints, in a folder or on s3://BUCKET/PREFIX"


def is_checkpoint(name: str) -> bool:
    """Whether a folder holds a model, a LoRA adapter or a run with a checkpoint; on S3, one of a run's checkpoints.

    StoreError where S3 cannot be asked.
    """
    if "://" in name:
        store, step = _named(name)
        return step in checkpoints.steps(store) if step is not None else bool(checkpoints.steps(store))
    folder = checkpoints.adapter_folder(name)
    return (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file()


def place(name: str) -> str:
    """Where exactly the adapter or model lies: of a run the folder or URL of its latest checkpoint's adapter, which
    stays the same while the run goes on. ConfigError where S3 has no such checkpoint."""
    if "://" not in name:
        return str(checkpoints.adapter_folder(name).resolve())
    store, found = _found(name)
    return f"{store.uri}/{FOLDER}/{_step(found)}/{ADAPTER}"


def here(name: str) -> Path:
    """The folder of the adapter or model on this machine.

    A folder as it is, whatever is in it. Of S3 a copy whose files are those that the run wrote: killed at any moment,
    or made by several processes at once, it is whole or made again. ConfigError where there is no such checkpoint,
    StoreError where its files are missing or damaged there.
    """
    if "://" not in name:
        return checkpoints.adapter_folder(name)
    while True:
        store, found = _found(name)
        try:
            return _copy(store, found)
        except StoreError:
            # A run under way removes its old checkpoints, and never before there is a later one.
            if _found(name)[1].step == found.step:
                raise


def check(folder: Path, base: str | None) -> Checkpoint | None:
    """What is said of the checkpoint in `folder`; None for an adapter or model that no run of ours wrote.

    ConfigError where it is not what the run wrote, or `base`, a folder, is another model than it was trained on, as far
    as its config.json says: weights are not read.
    """
    checkpoint = checkpoints.check_adapter(folder)
    # By name alone nothing is refused: a folder may have moved.
    if checkpoint and checkpoint.base_hash and base and checkpoints.base_hash(base):
        checkpoints.refuse_other_base(checkpoint, base)
    return checkpoint


def name_of(folder: PurePath) -> str:
    """RUN-step000210 of a run's checkpoint, of another folder its name. `folder` is absolute."""
    if folder.name != ADAPTER or len(folder.parents) < 3:
        return folder.name
    return f"{folder.parents[2].name}-{folder.parent.name}"


def _named(name: str) -> tuple[Store, int | None]:
    """(store of the run; step, None for the latest) of a name on S3."""
    if not name.startswith("s3://"):
        raise ConfigError(f"{name} cannot be read: {WANTED}")
    run, step = checkpoints.step_of(name)
    return open_store(run), step


def _found(name: str) -> tuple[Store, Checkpoint]:
    """(store of the run, what is said of the checkpoint) of a name on S3."""
    store, step = _named(name)
    known = checkpoints.steps(store)
    if step is None and known:
        step = known[-1]
    if step not in known or step is None:
        there = f" (it has {', '.join(map(str, known))})" if known else ""
        raise ConfigError(f"there is no checkpoint at {name}{there}: {WANTED}")
    return store, checkpoints.read(store, step)


def _copy(store: Store, found: Checkpoint) -> Path:
    """The adapter's folder in the cache, copied where it is not there whole."""
    marks = {name: mark.sha256 for name, mark in found.files.items() if name.startswith(f"{ADAPTER}/")}
    if odd := [name for name in marks if not _PLAIN.fullmatch(name)]:
        # Nobody's metadata may have anything written outside the cache.
        raise ConfigError(f"{store.uri}: the checkpoint of step {found.step} is damaged: it names a file {odd[0]!r}")
    identity = hashlib.sha256(repr(sorted(marks.items())).encode()).hexdigest()[:16]
    copy = LocalStore(str(_cache() / identity / store.uri.rpartition("/")[2]))
    folder = Path(copy.uri) / FOLDER / _step(found) / ADAPTER
    if not _whole(folder):
        copy.remove_leftovers()
        checkpoints.copy_adapter(store, found, copy)
    return folder


def _whole(folder: Path) -> bool:
    try:
        return checkpoints.check_adapter(folder) is not None
    except ConfigError:
        return False


def _cache() -> Path:
    return local_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "kb_ray" / "checkpoints"


def _step(found: Checkpoint) -> str:
    return f"step{found.step:06d}"
