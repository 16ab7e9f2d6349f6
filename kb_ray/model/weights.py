"""Loads a model for this process, whole or not at all: network and tokenizer, a LoRA adapter over its base.

What is missing from a file of weights would be drawn at random, and an adapter whose names match nothing would leave
its base as it is: both answer, and say nothing of the checkpoint. Imports transformers and peft when called; asks no
model anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from kb_ray.errors import ConfigError

_INSTALL = "pip install 'kb-ray[train]'"
_ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_NAMED = 3
_RECOMPUTED = ("rotary_emb.inv_freq",)
"""Ends of names that old files hold though no model reads them."""
_Loaded = TypeVar("_Loaded")


def load(source: str) -> tuple[Any, Any]:
    """(network, ready to answer on the GPU where there is one; tokenizer) of a folder or of a name on the hub.

    ConfigError, in one line with what to do, where a package is missing, a file is damaged or of another model, or
    weights are missing or left over.
    """
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise ConfigError(f"a model in this process needs more packages ({error}): {_INSTALL}") from error
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

    config = _read(named, "config.json", lambda: AutoConfig.from_pretrained(named))
    network, told = _read(named, "its weights", whole)
    sizes = {name[0] if isinstance(name, tuple) else name for name in told["mismatched_keys"]}
    _refuse_parts(named, told["missing_keys"], told["unexpected_keys"], sizes)
    if base is not None:
        network = _adapted(network, source)
    _refuse_odd_numbers(source, network)
    own = base is None or (folder / "tokenizer_config.json").is_file()
    words = source if own else named
    tokenizer = _read(words, "its tokenizer", lambda: AutoTokenizer.from_pretrained(words))
    return _read(source, "its weights", lambda: network.to(device).eval()), tokenizer


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

    found, told = _read(source, "adapter_config.json or adapter_model.safetensors", over)
    _refuse_parts(source, told.missing_keys, told.unexpected_keys, ())
    return found


def _read(source: str, what: str, how: Callable[[], _Loaded]) -> _Loaded:
    """What `how` returns. ConfigError, whatever it raises: that depends on the library, and on where a file ends."""
    try:
        return how()
    except ImportError as error:
        raise ConfigError(f"model {source} needs more packages ({_one_line(error)}): {_INSTALL}") from error
    except Exception as error:
        raise ConfigError(
            f"model {source} cannot be loaded: {what}: {_one_line(error)}; copy or save the checkpoint again, or name "
            "another"
        ) from error


def _refuse_parts(
    source: str, missing: Collection[str], unexpected: Collection[str], other_sizes: Collection[str]
) -> None:
    """ConfigError where weights are missing, left over or of another size. Tied ones, such as lm_head, the libraries
    count as there."""
    left_over = [name for name in unexpected if not name.endswith(_RECOMPUTED)]
    parts = (
        ("lacks", missing),
        ("holds, for no layer of this model,", left_over),
        ("holds in another size than the configuration says", other_sizes),
    )
    told = [f"{what} {_some(names)}" for what, names in parts if names]
    if told:
        raise ConfigError(
            f"model {source} is not whole: its file of weights {' and '.join(told)}; copy or save the checkpoint again"
        )


def _refuse_odd_numbers(source: str, network: Any) -> None:
    """ConfigError where a weight is NaN or infinite: such a model still answers, with any tokens."""
    import torch

    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    odd = [
        name
        for name, held in network.named_parameters()
        if held.dtype in kinds and not held.is_meta and not bool(torch.isfinite(held).all())
    ]
    if odd:
        raise ConfigError(
            f"model {source} cannot answer: its weights are NaN or infinite in {_some(odd)}; name an earlier checkpoint"
        )


def base_of(folder: Path) -> str | None:
    """What an adapter folder was trained on, a path below a home folder in full; None for a folder of whole weights or
    a name."""
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        return None
    try:
        named = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{adapter} names no base model: {_one_line(error)}; save the adapter again") from error
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{adapter} names no base model but {named!r}; save the adapter again")
    return os.path.expanduser(named)


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
