"""The adapter that a run is to begin with, wherever it lies: a run's last one, that of a checkpoint, or a plain one.

Each in a folder or on S3. Knows places, not what an adapter must be like; loads no torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kb_ray import checkpoints
from kb_ray.checkpoints import ADAPTER, FOLDER, MARK, Checkpoint
from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.store import Store, open_store

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NONE = "holds no adapter: give a run's output, a checkpoint or an adapter's folder, here or on s3://BUCKET/PREFIX"
Found = TypeVar("Found")


class Origin(NamedTuple):
    """Where an adapter lies."""

    path: str
    """As it was named."""
    store: Store
    """The run's, or that of the adapter's own folder."""
    checkpoint: Checkpoint | None
    """The one that it belongs to; None for a plain adapter."""
    below: str
    """What the keys of its files begin with."""

    def get(self, name: str) -> bytes | None:
        """One of its files as it lies there; None where there is none."""
        return self.store.get(self.below + name)


def read(path: str, use: Callable[[Origin], Found]) -> Found | None:
    """What `use` makes of the adapter at `path`; None where there is none.

    Of a run that goes on meanwhile, and removes its old checkpoints, the one that is the last then is taken.
    ConfigError where the checkpoint that `path` names is not there, and what `use` raises.
    """
    run, step = checkpoints.step_of(path if "://" in path else os.path.abspath(os.path.expanduser(path)))
    store = open_store(run)
    known = checkpoints.steps(store)
    wanted = known if step is None else [one for one in known if one == step]
    while wanted:
        last = wanted[-1]
        try:
            return use(_of_step(path, store, last))
        except StoreError:
            # Old checkpoints are removed, and never before there is a later one.
            wanted = checkpoints.steps(store) if step is None else []
            if not wanted or wanted[-1] == last:
                raise
    plain = _plain(path)
    if plain is None and step is not None and known:
        raise ConfigError(f"--start-from: {run} has no checkpoint of step {step}: it has {', '.join(map(str, known))}")
    return None if plain is None else use(plain)


def _of_step(path: str, store: Store, step: int) -> Origin:
    return Origin(path, store, checkpoints.read(store, step), f"{FOLDER}/step{step:06d}/{ADAPTER}/")


def _plain(path: str) -> Origin | None:
    """An adapter's own folder, or a checkpoint that was copied out of its run."""
    if "://" in path:
        found = Origin(path, open_store(path), None, "")
    else:
        folder = checkpoints.adapter_folder(path)
        mark = folder.parent / MARK
        own = checkpoints.told(mark) if folder.name == ADAPTER and mark.is_file() else None
        found = Origin(path, open_store(os.path.abspath(folder)), own, "")
    return None if found.get(CONFIG) is None and found.get(WEIGHTS) is None else found
