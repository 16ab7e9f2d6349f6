"""A base model with a LoRA adapter to be trained, and its tokenizer. Knows transformers and PEFT, no data.

Loaded whole or not at all: what is missing from a file of weights the libraries would draw at random and go on.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from kb_ray.errors import ConfigError
from kb_ray.learn.memory import fitting, ran_out
from kb_ray.learn.objective import LearnerSettings

_INSTALL = "pip install 'kb-ray[train]'"
_OF_EMBEDDINGS, _OF_A_MATRIX = 4096, 64
"""Elements that stand for one in a fingerprint, at equal distances."""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_RECOMPUTED = ("rotary_emb.inv_freq",)
"""Ends of names that old files hold though no model reads them."""
_OF_LORA = "lora_"
"""In the names of an adapter's weights, and in no other."""
_NAMED = 3
_AGAIN = "copy or save it again, or name another"
_Loaded = TypeVar("_Loaded")


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
        raise ConfigError(f"training needs more packages ({error}): {_INSTALL}") from error
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
    _refuse_odd_numbers(f"model {settings.model}", dict(network.named_parameters()))
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
    base, told = _read(model, whole)
    sizes = {name[0] if isinstance(name, tuple) else name for name in told["mismatched_keys"]}
    _refuse_parts(model, told["missing_keys"], told["unexpected_keys"], sizes)
    return base


def tokenizer_of(model: str) -> Any:
    """The tokenizer of a model alone. ConfigError where it or a package is missing, or a file of it is damaged."""

    def own() -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(model)

    return _read(f"the tokenizer of {model}", own)


def _read(what: str, how: Callable[[], _Loaded]) -> _Loaded:
    """What `how` returns. ConfigError, whatever it raises: that depends on the library, and on where a file ends.

    Where memory ran out the error stays: how large the model may be is told elsewhere.
    """
    try:
        return how()
    except ImportError as error:
        raise ConfigError(f"training needs more packages ({error}): {_INSTALL}") from error
    except Exception as error:
        if ran_out(error):
            raise
        raise ConfigError(f"{what} cannot be loaded: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
    # These two say what they mean; of others the text may be a mere name.
    return line if line and isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {line}"


def _refuse_parts(
    what: str, missing: Collection[str], unexpected: Collection[str], other_sizes: Collection[str] = ()
) -> None:
    """ConfigError where weights are missing, left over or of another size. Tied ones, such as lm_head, the libraries
    count as there."""
    parts = (
        ("lacks", missing),
        ("holds, for no layer here,", [name for name in unexpected if not name.endswith(_RECOMPUTED)]),
        ("holds in another size than the configuration says", other_sizes),
    )
    if told := [f"{kind} {_some(names)}" for kind, names in parts if names]:
        raise ConfigError(f"{what} is not whole: its file of weights {' and '.join(told)}; {_AGAIN}")


def _refuse_odd_numbers(what: str, weights: Mapping[str, Any]) -> None:
    """ConfigError where a weight is NaN or infinite: no step could be taken, or none would mean anything."""
    held = {name: one for name, one in weights.items() if one.dtype in _FLOATS and not one.is_meta and one.numel()}
    # The least and the largest of them: no second tensor of that size, for which a GPU may have no room.
    odd = [name for name, one in held.items() if not all(edge.isfinite() for edge in one.detach().aminmax())]
    if odd:
        raise ConfigError(f"{what} cannot be trained: its weights are NaN or infinite in {_some(odd)}; {_AGAIN}")


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


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
    held = _read(what, lambda: parse(weights))
    _refuse_odd_numbers(what, held)
    try:
        missed = set_peft_model_state_dict(network, held)
    except RuntimeError as error:
        if ran_out(error):
            raise
        line = next((text.strip() for text in str(error).splitlines()[1:] if text.strip()), str(error))
        raise ConfigError(f"{what} does not fit the settings of LoRA: {line}") from error
    # Of the base model nothing is in such a file.
    _refuse_parts(what, [name for name in missed.missing_keys if _OF_LORA in name], missed.unexpected_keys)


def _eight_bit() -> dict[str, Any]:
    from transformers import BitsAndBytesConfig

    # One process may spread the model over all GPUs; of several each has its own.
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    place = {"": torch.cuda.current_device()} if several else "auto"
    return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True), "device_map": place}
