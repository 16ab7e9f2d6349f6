"""Where a served checkpoint lies for good: a run under way removes its old ones, and a replica may start any day.

    OUTPUT/served/HASH/RUN/checkpoints/step000210/adapter/...       (RUN: the last part of OUTPUT)

The copy is in the run's own place, which every replica can read, and has a run's layout, so that it is found, named and
checked as a run's checkpoint is. HASH is over the adapter's files: other weights are another copy. Nothing removes it.
"""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path

from kb_ray import checkpoints, local_checkpoints
from kb_ray.checkpoints import ADAPTER, Checkpoint
from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.store import Store, StoreUnavailable, open_store

FOLDER = "served"
_COPY = re.compile(rf"/{FOLDER}/[0-9a-f]{{16}}/[^/]+$")
_log = logging.getLogger(__name__)


def lasting(place: str, folder: Path, checkpoint: Checkpoint | None) -> str:
    """Where the adapter at `place` lies for good, copied there where a run may remove it.

    `folder`, `checkpoint`: what local_checkpoints says of `place`, here and whole. An adapter that no run can remove
    stays where it is: one that no run wrote, a checkpoint that somebody copied, a copy of this kind. So does one in a
    place that cannot be written to, which a warning tells. StoreError where the place fails.
    """
    run, step = checkpoints.step_of(place)
    if checkpoint is None or step is None or _COPY.search(run):
        return place
    copy = open_store(f"{run}/{FOLDER}/{_identity(checkpoint)}/{run.rpartition('/')[2]}")
    if not _whole(copy, step):
        try:
            copy.check_writable()
        except ConfigError as error:
            _log.warning("%s is served from where it lies, until its run removes it: %s", place, error)
            return place
        # What is here was looked at already, and of S3 nobody removes it meanwhile.
        checkpoints.copy_adapter(open_store(str(folder.parents[2])), checkpoint, copy)
    return local_checkpoints.place(f"{copy.uri}/{checkpoints.FOLDER}/step{step:06d}")


def _identity(checkpoint: Checkpoint) -> str:
    marks = sorted((name, mark.sha256) for name, mark in checkpoint.files.items() if name.startswith(f"{ADAPTER}/"))
    return hashlib.sha256(repr(marks).encode()).hexdigest()[:16]


def _whole(copy: Store, step: int) -> bool:
    """Whether it is there as it was written: one that was left half-way, or altered, is made again."""
    try:
        checkpoints.load(copy, step, f"{ADAPTER}/")
    except StoreUnavailable:
        raise
    except StoreError:
        return False
    return True
