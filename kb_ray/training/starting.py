"""The shape of an adapter that a run begins with: rank, scale and modules, which its own adapter has to have.

An adapter for another base model is refused here, as far as that is known before the model is loaded. Reads the
adapter's settings as PEFT writes them; loads no weights, and no torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from kb_ray.errors import ConfigError, StoreError
from kb_ray.learn.objective import LoraSettings
from kb_ray.training import origins
from kb_ray.training.bases import refuse_others_adapter, refuse_others_checkpoint
from kb_ray.training.origins import CONFIG, Origin
from kb_ray.training.settings import TrainSettings

_NOT_KEPT = (
    "use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "lora_bias", "fan_in_fan_out", "modules_to_save",
    "exclude_modules", "layers_to_transform", "layers_pattern", "layer_replication", "target_parameters",
    "trainable_token_indices", "alora_invocation_tokens", "megatron_config", "use_qalora", "use_bdlora", "arrow_config",
    "kasa_config", "velora_config", "monteclora_config",
)  # fmt: skip
"""Settings of PEFT that change what the weights of an adapter mean, or where they are; here they are all off."""
_OTHER_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")
"""First weights for which PEFT alters those of the base model too."""
Settings = TypeVar("Settings", bound=TrainSettings)


def shaped(settings: Settings, outputs: Sequence[str] = ()) -> Settings:
    """Settings with the shape of the adapter at `start_from`, where they name none of their own.

    `outputs`: where the run keeps checkpoints. Once there is one the shape is that one's, as `start_from` is read at
    the first start alone. ConfigError where the settings name another shape, or it cannot be read or kept, or the
    adapter to begin with is for another base model.
    """
    if settings.start_from is None or settings.learner == "tinker":
        return settings
    origin, data = _adapter((*outputs, settings.start_from))
    path, config = origin.path, _read(origin.path, data)
    found = _shape(path, config)
    if path not in outputs:
        _refuse_other_base(origin, config, settings.model_name)
    for name, value in found.items():
        own = getattr(settings, name)
        if name in settings.model_fields_set and _comparable(own) != _comparable(value):
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag}: {_said(own)}, and the adapter at {path} has {_said(value)}: leave {flag} out")
    return settings.model_copy(update=found)


def _refuse_other_base(origin: Origin, config: dict[str, Any], model: str) -> None:
    if origin.checkpoint is not None:
        refuse_others_checkpoint(origin.path, origin.checkpoint, model)
    else:
        refuse_others_adapter(origin.path, config, model)


def _adapter(paths: Sequence[str]) -> tuple[Origin, bytes]:
    """The first of them with an adapter, and what PEFT says of that; ConfigError, about the last, where there is
    none."""
    for path in paths:
        found = origins.read(path, _config)
        if found is not None:
            return found
    raise ConfigError(f"{paths[-1]} {origins.NONE}")


def _config(origin: Origin) -> tuple[Origin, bytes] | None:
    """This file alone: beside it are the weights and the optimizer. None where a plain adapter has none."""
    data = origin.get(CONFIG)
    if data is None and origin.below:
        raise StoreError(f"{origin.path}: {origin.below}{CONFIG} is missing: name another checkpoint")
    return None if data is None else (origin, data)


def _read(path: str, data: bytes) -> dict[str, Any]:
    """What PEFT says of the adapter; ConfigError where it is none of LoRA."""
    try:
        config = json.loads(data)
    except ValueError as error:
        raise ConfigError(f"{path}: {CONFIG} is damaged: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type", "LORA") != "LORA":
        raise ConfigError(f"{path}: {CONFIG} is none of LoRA")
    return config


def _shape(path: str, config: dict[str, Any]) -> dict[str, Any]:
    """Rank, scale and modules by the names of the settings. ConfigError where the settings cannot be like that."""
    modules = config.get("target_modules")
    if isinstance(modules, str):
        raise ConfigError(f"{path}: {CONFIG} names modules by a pattern, {modules!r}: an adapter with names is needed")
    if others := _others(config):
        raise ConfigError(f"{path}: the adapter has {', '.join(others)}, which no adapter here can have")
    try:
        if not modules:
            raise KeyError("target_modules")
        given = {"lora_rank": config["r"], "lora_alpha": config["lora_alpha"], "lora_targets": sorted(modules)}
        valid = TrainSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{path}: {CONFIG}: {first['loc'][0]} of {first['input']}: {first['msg']}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path}: {CONFIG} is none of LoRA ({type(error).__name__}: {error})") from error
    usual = _comparable(valid.lora_targets) == _comparable(())
    targets = () if usual else valid.lora_targets
    return {"lora_rank": valid.lora_rank, "lora_alpha": valid.lora_alpha, "lora_targets": targets}


def _others(config: dict[str, Any]) -> list[str]:
    """What the adapter has beside rank, scale and modules, by PEFT's names."""
    found = [name for name in _NOT_KEPT if config.get(name)]
    if config.get("bias", "none") != "none":
        found.append("bias")
    if str(config.get("init_lora_weights")).startswith(_OTHER_BASE):
        found.append(f"init_lora_weights {config['init_lora_weights']}")
    return found


def _comparable(value: Any) -> Any:
    """Modules stand in any order, and none named are all."""
    return frozenset(value or LoraSettings().target_modules) if isinstance(value, tuple) else value


def _said(value: Any) -> str:
    return (", ".join(value) or "all projections") if isinstance(value, tuple) else str(value)
