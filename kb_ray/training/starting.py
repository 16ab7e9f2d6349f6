"""The shape of an adapter that a run begins with: rank, scale and modules, which its own adapter has to have.

Reads the adapter's settings as PEFT writes them; loads no weights, and no torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from kb_ray import checkpoints
from kb_ray.errors import ConfigError
from kb_ray.learn.objective import LoraSettings
from kb_ray.traces.store import open_store
from kb_ray.training.settings import TrainSettings

_CONFIG = "adapter_config.json"
Settings = TypeVar("Settings", bound=TrainSettings)


def shaped(settings: Settings) -> Settings:
    """Settings with the shape of the adapter at `start_from`, where they name none of their own.

    ConfigError where they name another one, or the shape cannot be read.
    """
    if settings.start_from is None or settings.learner == "tinker":
        return settings
    found = _shape(settings.start_from)
    for name, value in found.items():
        own = getattr(settings, name)
        if name in settings.model_fields_set and own != value:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{flag}: {_said(own)}, and the adapter at {settings.start_from} has {_said(value)}: leave {flag} out"
            )
    return settings.model_copy(update=found)


def _shape(path: str) -> dict[str, Any]:
    config = _config(path)
    try:
        modules = tuple(sorted(config["target_modules"]))
        rank, alpha = int(config["r"]), int(config["lora_alpha"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {_CONFIG} is none of LoRA ({type(error).__name__}: {error})") from error
    usual = set(modules) == set(LoraSettings().target_modules)
    return {"lora_rank": rank, "lora_alpha": alpha, "lora_targets": () if usual else modules}


def _config(path: str) -> dict[str, Any]:
    """What PEFT says of the adapter of a run, a checkpoint or a folder."""
    if path.startswith("s3://"):
        store = open_store(path)
        last = checkpoints.latest(store)
        data = checkpoints.load(store, last.step).files.get(f"{checkpoints.ADAPTER}/{_CONFIG}") if last else None
    else:
        file = checkpoints.adapter_folder(Path(path)) / _CONFIG
        data = file.read_bytes() if file.is_file() else None
    if data is None:
        raise ConfigError(f"{path} holds no adapter: give a run's output, a checkpoint or an adapter's folder")
    try:
        config = json.loads(data)
    except ValueError as error:
        raise ConfigError(f"{path}: {_CONFIG} is damaged: {error}") from error
    return config if isinstance(config, dict) else {}


def _said(value: Any) -> str:
    return (", ".join(value) or "all projections") if isinstance(value, tuple) else str(value)
