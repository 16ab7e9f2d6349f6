"""A base model with a LoRA adapter to be trained, and its tokenizer. Knows transformers and PEFT, no data.

Loaded whole or not at all: what is missing from a file of weights the libraries would draw at random and go on.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from kb_ray.errors import ConfigError
from kb_ray.learn.memory import fitting
from kb_ray.learn.objective import LearnerSettings
from kb_ray.out_of_memory import ran_out
from kb_ray.whole_weights import packages_missing, read, refuse_loaded, refuse_odd_numbers, refuse_parts

_OF_EMBEDDINGS, _OF_A_MATRIX = 4096, 64
"""Elements that stand for one in a fingerprint, at equal distances."""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_OF_LORA = "lora_"
"""In the names of an adapter's weights, and in no other."""


def load(settings: LearnerSettings, device: str) -> tuple[Any, Any]:
    """(network, tokenizer). ConfigError, in one line, where the model or a package is missing, or memory runs out.

    The same where a file of the model is damaged, or weights are missing, left over, NaN or infinite. The base model is
    frozen, in bfloat16 on a GPU; the adapter is float32 everywhere. Its first weights depend on the seed alone.
    """
    with fitting(settings, device):
        return _load(settings, device)


def _load(settings: LearnerSettings, device: str) -> tuple[Any, Any]:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise packages_missing("training", error) from error
    base = _base(settings, device)
    tokenizer = tokenizer_of(settings.model)
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
    network = network if settings.load_in_8bit else network.to(device)
    refuse_odd_numbers(f"model {settings.model}", network.named_parameters())
    return network, tokenizer


def _base(settings: LearnerSettings, device: str) -> Any:
    """The base model as its files hold it."""

    def whole() -> Any:
        from transformers import AutoModelForCausalLM

        more = _eight_bit() if settings.load_in_8bit else {}
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        # Sizes that do not fit are told below, by name.
        return AutoModelForCausalLM.from_pretrained(
            settings.model, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **more
        )

    model = f"model {settings.model}"
    base, told = read(model, "its weights", whole)
    refuse_loaded(model, told)
    return base


def tokenizer_of(model: str) -> Any:
    """The tokenizer of a model alone. ConfigError where it or a package is missing, or a file of it is damaged."""

    def own() -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(model)

    return read(f"model {model}", "its tokenizer", own)


def base_weights(network: Any) -> dict[str, str]:
    """Fingerprints of the base model's weights by part, the same in whatever type of number they are held.

    `embeddings`: a sample of those of its tokens, its norms and its biases; `matrices`: a sample of all others but the
    output's. A part is left out where some of it is quantized or not in memory. Names and order do not count: they are
    other ones in other versions of transformers.
    """
    inputs, outputs = (
        getattr(layer, "weight", None) for layer in (network.get_input_embeddings(), network.get_output_embeddings())
    )
    of_base = [weights for name, weights in network.named_parameters() if _OF_LORA not in name]
    inner = [weights for weights in of_base if weights is not inputs and weights is not outputs]
    parts = {
        "embeddings": ([inputs, *(weights for weights in inner if weights.dim() < 2)], _OF_EMBEDDINGS),
        "matrices": ([weights for weights in inner if weights.dim() > 1], _OF_A_MATRIX),
    }
    found = {name: _fingerprint(weights, count) for name, (weights, count) in parts.items()}
    return {name: told for name, told in found.items() if told is not None}


def _fingerprint(parameters: Iterable[Any], count: int) -> str | None:
    """32 hexadecimal digits over at most `count` elements of each; None where one of them cannot be read."""
    each = set[str]()
    for weights in parameters:
        if weights is None or weights.is_meta or weights.dtype not in _FLOATS:
            return None
        flat = weights.detach().reshape(-1)
        # As they are held on a GPU: rounding what is rounded already changes nothing.
        sample = flat[:: max(1, flat.numel() // count)][:count].to(torch.bfloat16).cpu().view(torch.int16)
        each.add(hashlib.sha256(sample.numpy().tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(each)).encode()).hexdigest()[:32]


def adapter_files(network: Any) -> dict[str, bytes]:
    """The adapter as PEFT writes it: files by name."""
    with tempfile.TemporaryDirectory() as scratch:
        network.save_pretrained(scratch)
        # PEFT's card says nothing that a checkpoint does not.
        return {p.name: p.read_bytes() for p in Path(scratch).iterdir() if p.is_file() and p.name != "README.md"}


def load_adapter(network: Any, weights: bytes) -> None:
    """Weights of an adapter (safetensors) into the network's. ConfigError where they are damaged, NaN or infinite, or
    shapes or names differ: each layer that is trained must be in them, and nothing else."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load as parse

    what = "the checkpoint's adapter"
    held = read(what, "its weights", lambda: parse(weights))
    refuse_odd_numbers(what, held.items())
    try:
        missed = set_peft_model_state_dict(network, held)
    except RuntimeError as error:
        if ran_out(error):
            raise
        line = next((text.strip() for text in str(error).splitlines()[1:] if text.strip()), str(error))
        raise ConfigError(f"{what} does not fit the settings of LoRA: {line}") from error
    # Of the base model nothing is in such a file.
    refuse_parts(what, [name for name in missed.missing_keys if _OF_LORA in name], missed.unexpected_keys)


def _eight_bit() -> dict[str, Any]:
    from transformers import BitsAndBytesConfig

    # One process may spread the model over all GPUs; of several each has its own.
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    place = {"": torch.cuda.current_device()} if several else "auto"
    return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True), "device_map": place}
