"""A learner to a checkpoint, and back: adapter, tokenizer, optimizer, random states and where the run was.

Any `stepping.Trainee` can be kept. Where checkpoints lie and when one exists is `checkpoints`' to say.
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from kb_ray import checkpoints
from kb_ray.checkpoints import ADAPTER, STATE, Checkpoint
from kb_ray.errors import ConfigError
from kb_ray.learn.stepping import HoldsBase, Trainee
from kb_ray.traces.store import Store
from kb_ray.training import origins
from kb_ray.training.bases import refuse_others_adapter, refuse_others_checkpoint
from kb_ray.training.origins import Origin

_WEIGHTS = f"{ADAPTER}/{origins.WEIGHTS}"


def save(store: Store, learner: Trainee, fingerprint: str, progress: dict[str, Any], keep: int = 2) -> Checkpoint:
    """Write the checkpoint of the learner's step, then remove all but the last `keep`."""
    buffer = io.BytesIO()
    torch.save(learner.state(), buffer)
    base = learner.settings.model
    checkpoint = Checkpoint(
        step=learner.steps,
        base_model=base,
        base_hash=checkpoints.base_hash(base),
        base_weights=_base_weights(learner),
        fingerprint=fingerprint,
        progress=progress,
    )
    saved = checkpoints.save(store, checkpoint, adapter_files(learner) | {STATE: buffer.getvalue()})
    checkpoints.prune(store, keep)
    return saved


def resume(store: Store, learner: Trainee, fingerprint: str) -> Checkpoint | None:
    """Take up the latest checkpoint; None where there is none.

    ConfigError where it is of another base model or of settings that learn something else.
    """
    found = checkpoints.latest(store)
    if found is None:
        return None
    base = learner.settings.model
    checkpoints.refuse_other_base(found, base, _base_weights(learner))
    if found.fingerprint != fingerprint:
        raise ConfigError(
            f"{store.uri} holds a run with other settings: repeat them to go on with it, or give another --output, "
            f"with --start-from {store.uri} to begin with what it learned"
        )
    files = checkpoints.load(store, found.step).files
    learner.restore(_state(files), files.get(_WEIGHTS))
    return found


def start_from(learner: Trainee, path: str) -> None:
    """Begin with the adapter of another run or checkpoint, its weights alone.

    ConfigError where it does not fit, or is for another base model.
    """
    if origins.read(path, lambda origin: _begin(learner, origin)) is None:
        raise ConfigError(f"{path} {origins.NONE}")


def _begin(learner: Trainee, origin: Origin) -> Origin:
    """Begin with the adapter there, whose files are seen to be what was written, where that is known."""
    model, base, found = learner.settings.model, _base_weights(learner), origin.checkpoint
    if found is not None:
        refuse_others_checkpoint(origin.path, found, model, base)
    else:
        refuse_others_adapter(origin.path, _config(origin), model)
    if found is not None and origin.below:
        # Here the adapter is all that is needed; a service's weights are where the state says.
        here = isinstance(learner, HoldsBase)
        files = checkpoints.load(origin.store, found.step, within=f"{ADAPTER}/" if here else "").files
        learner.begin_with(files.get(_WEIGHTS), None if here else _state(files))
        return origin
    if "://" not in origin.path:
        checkpoints.check_adapter(checkpoints.adapter_folder(origin.path))
    weights = origin.get(origins.WEIGHTS)
    if weights is None:
        raise ConfigError(f"{origin.path} {origins.NONE}")
    learner.begin_with(weights, None)
    return origin


def _config(origin: Origin) -> dict[str, Any]:
    """What PEFT says of an adapter; empty where it says nothing. `starting` refuses what makes no sense."""
    try:
        found = json.loads(origin.get(origins.CONFIG) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _base_weights(learner: Trainee) -> dict[str, str]:
    return learner.base_weights() if isinstance(learner, HoldsBase) else {}


def _state(files: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(files[STATE]), weights_only=True, map_location="cpu")
    return found


def adapter_files(learner: Trainee) -> dict[str, bytes]:
    """The adapter and the tokenizer, by name within a checkpoint."""
    with tempfile.TemporaryDirectory() as scratch:
        learner.tokenizer.save_pretrained(scratch)
        found = {path.name: path.read_bytes() for path in Path(scratch).iterdir() if path.is_file()}
    return {f"{ADAPTER}/{name}": data for name, data in (found | learner.adapter()).items()}
