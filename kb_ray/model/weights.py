"""Loads a model for this process, whole or not at all: network and tokenizer, a LoRA adapter over its base.

Imports transformers and peft when called; asks no model anything.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kb_ray.errors import ConfigError
from kb_ray.out_of_memory import ran_out
from kb_ray.whole_weights import one_line, packages_missing, read, refuse_loaded, refuse_odd_numbers, refuse_parts

_ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")


def load(source: str) -> tuple[Any, Any]:
    """(network, ready to answer on the GPU where there is one; tokenizer) of a folder or of a name on the hub.

    ConfigError, in one line with what to do, where a package is missing, a file is damaged or of another model, weights
    are missing, left over, NaN or infinite, or memory runs out.
    """
    try:
        return _load(source)
    except Exception as error:
        if isinstance(error, ConfigError) or not ran_out(error):
            raise
        raise ConfigError(
            f"model {source} does not fit into memory ({one_line(error)}): run where there is more, or serve it and "
            "name the server"
        ) from error


def _load(source: str) -> tuple[Any, Any]:
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise packages_missing("a model in this process", error) from error
    folder = Path(source)
    base = base_of(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # As the learner has it: what is judged is then the policy that was trained.
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    named = base or source

    def whole() -> Any:
        # Sizes that do not fit are told below, by name.
        return AutoModelForCausalLM.from_pretrained(
            named, config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
        )

    config = read(f"model {named}", "config.json", lambda: AutoConfig.from_pretrained(named))
    network, told = read(f"model {named}", "its weights", whole)
    refuse_loaded(f"model {named}", told)
    if base is not None:
        network = _adapted(network, source)
    refuse_odd_numbers(f"model {source}", network.named_parameters())
    own = base is None or (folder / "tokenizer_config.json").is_file()
    words = source if own else named
    tokenizer = read(f"model {words}", "its tokenizer", lambda: AutoTokenizer.from_pretrained(words))
    return network.to(device).eval(), tokenizer


def _adapted(network: Any, source: str) -> Any:
    """The network with its adapter."""
    files = [Path(source) / name for name in _ADAPTER_FILES]
    if not any(file.is_file() for file in files):
        raise ConfigError(f"model {source} is not whole: it holds no {files[0].name}; copy or save the adapter again")

    def over() -> tuple[Any, Any]:
        from peft import PeftModel

        found = PeftModel.from_pretrained(network, source)
        # Reading the weights again is how peft tells what did not fit; the first time it only warns.
        return found, found.load_adapter(source, "default")

    found, told = read(f"model {source}", "adapter_config.json or adapter_model.safetensors", over)
    refuse_parts(f"model {source}", told.missing_keys, told.unexpected_keys)
    return found


def base_of(folder: Path) -> str | None:
    """What an adapter folder was trained on, a path below a home folder in full; None for a folder of whole weights or
    a name."""
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        return None
    try:
        named = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{adapter} names no base model: {one_line(error)}; save the adapter again") from error
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{adapter} names no base model but {named!r}; save the adapter again")
    return os.path.expanduser(named)
