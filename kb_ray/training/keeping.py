"""A learner to a checkpoint, and back: adapter, tokenizer, optimizer, random states and where the run was.

Knows how PEFT and torch write their state; where checkpoints lie and when one exists is `checkpoints`'.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path
from typing import Any

import torch

from kb_ray import checkpoints
from kb_ray.checkpoints import ADAPTER, STATE, Checkpoint
from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.traces.store import Store


def save(store: Store, learner: Learner, fingerprint: str, progress: dict[str, Any], keep: int = 2) -> Checkpoint:
    """Write the checkpoint of the learner's step, then remove all but the last `keep`."""
    buffer = io.BytesIO()
    torch.save(learner.state(), buffer)
    base = learner.settings.model
    checkpoint = Checkpoint(
        step=learner.steps, base_model=base, base_hash=base_hash(base), fingerprint=fingerprint, progress=progress
    )
    saved = checkpoints.save(store, checkpoint, adapter_files(learner) | {STATE: buffer.getvalue()})
    checkpoints.prune(store, keep)
    return saved


def resume(store: Store, learner: Learner, fingerprint: str) -> Checkpoint | None:
    """Take up the latest checkpoint; None where there is none.

    ConfigError where it is of another base model or of settings that learn something else.
    """
    found = checkpoints.latest(store)
    if found is None:
        return None
    base = learner.settings.model
    checkpoints.refuse_other_base(found, base, base_hash(base))
    if found.fingerprint != fingerprint:
        raise ConfigError(
            f"{store.uri} holds a run with other settings: repeat them to go on with it, or give another output"
        )
    loaded = checkpoints.load(store, found.step)
    load_adapter(learner, loaded.files)
    learner.restore(torch.load(io.BytesIO(loaded.files[STATE]), weights_only=True, map_location="cpu"))
    return found


def start_from(learner: Learner, path: str) -> None:
    """Begin with the adapter of another run or checkpoint, its weights alone. ConfigError where it does not fit."""
    folder = checkpoints.adapter_folder(path)
    weights = folder / "adapter_model.safetensors"
    if not weights.is_file():
        raise ConfigError(f"{path} holds no adapter: give a run's output, a checkpoint or an adapter's folder")
    load_adapter(learner, {f"{ADAPTER}/{weights.name}": weights.read_bytes()})


def adapter_files(learner: Learner) -> dict[str, bytes]:
    """The adapter as PEFT writes it and the tokenizer, by name within a checkpoint."""
    with tempfile.TemporaryDirectory() as scratch:
        learner.network.save_pretrained(scratch)
        learner.tokenizer.save_pretrained(scratch)
        found = {f"{ADAPTER}/{path.name}": path.read_bytes() for path in Path(scratch).iterdir() if path.is_file()}
    # PEFT's card says nothing that checkpoint.json does not.
    found.pop(f"{ADAPTER}/README.md", None)
    return found


def load_adapter(learner: Learner, files: dict[str, bytes]) -> None:
    """Weights of an adapter into the learner's; ConfigError where shapes or names differ."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load

    weights = load(files[f"{ADAPTER}/adapter_model.safetensors"])
    try:
        missed = set_peft_model_state_dict(learner.network, weights)
    except RuntimeError as error:
        line = next((text.strip() for text in str(error).splitlines()[1:] if text.strip()), str(error))
        raise ConfigError(f"the checkpoint's adapter does not fit the settings of LoRA: {line}") from error
    if missed.unexpected_keys:
        raise ConfigError(f"the checkpoint's adapter has more weights than LoRA here: {missed.unexpected_keys[0]}")


def base_hash(model: str) -> str | None:
    """Of a model folder's config.json, which says what the model is however the folder is called; None for a name."""
    config = Path(model).expanduser() / "config.json"
    return hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else None
