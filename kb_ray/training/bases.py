"""Whether the adapter that a run is to begin with is for the base model that is to learn.

Of our own checkpoints that is known; of others there is the name that PEFT wrote down. Loads no weights, and no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kb_ray.base_models import is_folder
from kb_ray.checkpoints import Checkpoint, base_hash, differing_base
from kb_ray.errors import ConfigError

_BASE = "base_model_name_or_path"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_CACHE = re.compile(r"models--(.+?)--([^/]+)/snapshots(?:/|$)")


def refuse_others_checkpoint(
    path: str, checkpoint: Checkpoint, model: str, weights: Mapping[str, str] | None = None
) -> None:
    """ConfigError where the checkpoint at `path` is of another base model than `model`.

    `weights`: fingerprints of those that are there; None: they are not loaded yet, and nothing else says it where they
    will be compared.
    """
    differs = differing_base(checkpoint, model, weights or {})
    if differs is None or (differs != "weights" and weights is None and checkpoint.base_weights):
        return
    theirs = checkpoint.base_model
    if theirs == model:
        raise ConfigError(
            f"--start-from: the adapter at {path} was trained on {theirs}, and the model that --model-name {model} "
            f"stands for now is another ({differs}): give the one that it was trained on"
        )
    raise ConfigError(
        f"--start-from: the adapter at {path} was trained on {theirs}, not on {model}: give --model-name {theirs}, or "
        "another adapter"
    )


def refuse_others_adapter(path: str, config: Mapping[str, Any], model: str) -> None:
    """ConfigError where a plain adapter, of which PEFT says `config`, is certainly for another model than `model`.

    A model may lie in any folder: two that are here are told apart by their config.json, two names on the hub by their
    last part, as others publish copies there. A folder that is not here may hold any model.
    """
    theirs = config.get(_BASE)
    if isinstance(theirs, str) and theirs and _two_models(theirs, model):
        raise ConfigError(
            f"--start-from: the adapter at {path} is for {theirs}, not for {model}: give --model-name {theirs}; if "
            f"they are the same model, correct {_BASE} in its adapter_config.json"
        )


def _two_models(one: str, other: str) -> bool:
    if one == other:
        return False
    hashes = base_hash(one), base_hash(other)
    if None not in hashes:
        return hashes[0] != hashes[1]
    names = _published(one), _published(other)
    return None not in names and names[0] != names[1]


def _published(model: str) -> str | None:
    """The last part of a model's name on the hub, in lower case; None where that is not known."""
    cached = _HUB_CACHE.search(model)
    if cached is not None:
        return cached[2].lower()
    named = _HUB_NAME.fullmatch(model) and not model.startswith(".") and not is_folder(model)
    return model.rpartition("/")[2].lower() if named else None
