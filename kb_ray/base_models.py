"""What a base model's config.json says that it computes, as hashes: the same one in whatever folder, whoever saved it.

Versions of transformers write the same model differently. Knows their names for the same things; reads no weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

_NOT_COMPUTED = frozenset(
    {"transformers_version", "_name_or_path", "_commit_hash", "torch_dtype", "dtype", "use_cache",
     "initializer_range", "transformers.js_config", "output_attentions", "output_hidden_states", "return_dict"}
)  # fmt: skip
"""What is noted there about who wrote the file, how weights are held and what a call returns."""
_WINDOW = ("use_sliding_window", "sliding_window", "max_window_layers")
_ROPE = ("rope_parameters", "rope_scaling", "rope_theta")
_THETA = 10_000.0
"""Where none is named."""


def is_folder(model: str) -> bool:
    """Whether a model's name stands for a folder on this machine."""
    return bool(model) and Path(os.path.expanduser(model)).is_dir()


def in_full(model: str) -> str:
    """A folder's absolute path, which means the same wherever a program is started; another name as it is."""
    return os.path.abspath(os.path.expanduser(model)) if is_folder(model) else model


def config_hashes(model: str) -> tuple[str, ...]:
    """Of a model folder's config.json: first of what it says that the model computes, then of the file's bytes, as
    earlier versions of kb_ray took it. Empty for a name on the hub, or where there is no such file."""
    config = Path(os.path.expanduser(model)) / "config.json"
    if not config.is_file():
        return ()
    data = config.read_bytes()
    as_it_is = hashlib.sha256(data).hexdigest()
    try:
        told = json.loads(data)
    except ValueError:
        return (as_it_is,)
    computed = json.dumps(_computed(told) if isinstance(told, dict) else told, sort_keys=True)
    return hashlib.sha256(computed.encode()).hexdigest(), as_it_is


def _computed(told: dict[str, Any]) -> dict[str, Any]:
    """What the model computes, in one wording; what is not named and what is null are the same."""
    found = {name: value for name, value in told.items() if value is not None and name not in _NOT_COMPUTED}
    rope = _rope(found)
    if found.get("use_sliding_window") is False:
        found = {name: value for name, value in found.items() if name not in _WINDOW}
    if set(found.get("layer_types", ())) == {"full_attention"}:
        del found["layer_types"]
    heads, width = found.get("num_attention_heads"), found.get("hidden_size")
    if isinstance(heads, int) and isinstance(width, int) and heads and found.get("head_dim") == width // heads:
        del found["head_dim"]
    return {name: value for name, value in found.items() if name not in _ROPE} | {"rope_parameters": rope}


def _rope(found: dict[str, Any]) -> dict[str, Any]:
    """How positions are turned, by the names that newer versions have for it."""
    rope: dict[str, Any] = {"rope_theta": found.get("rope_theta", _THETA), "rope_type": "default"}
    for part in ("rope_scaling", "rope_parameters"):
        if isinstance(found.get(part), dict):
            rope |= found[part]
    rope["rope_type"] = rope.pop("type", rope["rope_type"])
    if isinstance(rope["rope_theta"], int):
        rope["rope_theta"] = float(rope["rope_theta"])
    return rope
