"""A base model with a LoRA adapter to be trained, and its tokenizer. Knows transformers and PEFT, no data."""

from __future__ import annotations

from typing import Any

import torch

from kb_ray.errors import ConfigError
from kb_ray.learn.objective import LearnerSettings

_INSTALL = "pip install 'kb-ray[train]'"


def load(settings: LearnerSettings, device: str) -> tuple[Any, Any]:
    """(network, tokenizer). ConfigError, in one line, where the model or a package is missing.

    The base model is frozen, in bfloat16 on a GPU; the adapter is float32 everywhere. Its first weights depend on the
    seed alone.
    """
    try:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM, AutoTokenizer

        more = _eight_bit() if settings.load_in_8bit else {}
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        base = AutoModelForCausalLM.from_pretrained(settings.model, dtype=dtype, **more)
        tokenizer = AutoTokenizer.from_pretrained(settings.model)
    except ImportError as error:
        raise ConfigError(f"training needs more packages ({error}): {_INSTALL}") from error
    except (OSError, ValueError) as error:
        line = next((text for text in str(error).splitlines() if text.strip()), "")
        raise ConfigError(f"model {settings.model} cannot be loaded: {line}") from error
    lora = settings.lora
    torch.manual_seed(settings.seed)
    try:
        network = get_peft_model(
            base,
            LoraConfig(
                r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, task_type="CAUSAL_LM",
                target_modules=list(lora.target_modules),
            ),
        )  # fmt: skip
    except ValueError as error:
        raise ConfigError(f"no adapter fits {settings.model}: {error}") from error
    if settings.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        base.enable_input_require_grads()
    return (network if settings.load_in_8bit else network.to(device)), tokenizer


def _eight_bit() -> dict[str, Any]:
    from transformers import BitsAndBytesConfig

    return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True), "device_map": "auto"}
