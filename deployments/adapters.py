"""A LoRA adapter as the only model of a server: whether vLLM can serve it, and what ray.serve.llm is told for it.

Knows what PEFT writes beside an adapter and what vLLM reads of it; loads no weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deployments.served_adapters import lasting
from kb_ray import local_checkpoints
from kb_ray.errors import ConfigError

ADAPTER = "adapter"
"""In `experimental_configs`, where ray.serve.llm leaves room for what is a server class's own."""
_SERVER = "deployments.adapter_server:AdapterServer"
_CONFIG = "adapter_config.json"
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM's max_lora_rank may be."""
_UNSERVED = (
    "use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias", "layer_replication",
    "target_parameters", "trainable_token_indices", "alora_invocation_tokens", "use_qalora", "use_bdlora",
)  # fmt: skip
"""Settings of PEFT that vLLM refuses late, or passes over in silence and answers from other weights."""
_OTHER_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")
"""First weights for which PEFT alters those of the base model too."""


def with_adapter(config: dict[str, Any], adapter: str) -> dict[str, Any]:
    """A model's config of ray.serve.llm, with `adapter` (a place as in local_checkpoints) in place of the base alone.

    It is copied to where it stays, as replicas start at any time. ConfigError where there is no adapter, it is not what
    a run wrote or of another base model, or vLLM cannot serve it.
    """
    folder, base = local_checkpoints.here(adapter), config["model_loading_config"]["model_source"]
    settings = _settings(folder, adapter)
    rank, trained_on = _rank(settings, adapter), settings.get("base_model_name_or_path")
    checkpoint = local_checkpoints.check(folder, base)
    # A folder may have moved, and is told by its content; of names on the hub there is nothing else to compare.
    moved = checkpoint is not None and checkpoint.base_hash is not None
    if not moved and _is_on_hub(base) and _is_on_hub(trained_on) and _published(base) != _published(trained_on):
        raise ConfigError(f"{adapter} was trained on {trained_on}, not on {base}: give that one as its base model")
    engine = {**config["engine_kwargs"], "enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
    return {
        **config,
        "engine_kwargs": engine,
        "server_cls": _SERVER,
        "experimental_configs": {ADAPTER: lasting(adapter, folder, checkpoint)},
    }


def _is_on_hub(model: Any) -> bool:
    """Whether a model's name is one on the hub: no folder's, no URL."""
    return isinstance(model, str) and "://" not in model and not model.startswith(("/", "./", "../", "~"))


def _published(name: str) -> str:
    """What a name on the hub says of the model: its last part, as others publish copies under their own names."""
    return name.rpartition("/")[2].lower()


def _settings(folder: Path, adapter: str) -> dict[str, Any]:
    """What PEFT says of the adapter."""
    try:
        found = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no adapter in {adapter}: {local_checkpoints.WANTED}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{adapter}: {_CONFIG} is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("peft_type", "LORA") != "LORA" or not isinstance(found.get("r"), int):
        raise ConfigError(f"{adapter}: {_CONFIG} is none of LoRA, and no other adapter is served")
    return found


def _rank(settings: dict[str, Any], adapter: str) -> int:
    """The least max_lora_rank with which vLLM serves an adapter. ConfigError where it serves none such."""
    others = [name for name in _UNSERVED if settings.get(name)]
    others += ["bias"] if settings.get("bias", "none") != "none" else []
    others += ["init_lora_weights"] if str(settings.get("init_lora_weights")).startswith(_OTHER_BASE) else []
    if others:
        raise ConfigError(
            f"{adapter} has {', '.join(others)}, which vLLM does not serve: merge it into its base, and serve that"
        )
    rank = settings["r"]
    if not 1 <= rank <= _RANKS[-1]:
        raise ConfigError(
            f"{adapter} has rank {rank}, and vLLM serves ranks from 1 to {_RANKS[-1]}: merge it into its base, and "
            "serve that"
        )
    return next(most for most in _RANKS if rank <= most)
