"""Checkpoints of runs for tests of serving: files as PEFT names them, with what is read of them and no weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kb_ray import checkpoints
from kb_ray.checkpoints import Checkpoint
from kb_ray.traces.store import LocalStore


def make_base(folder: Path, **config: Any) -> str:
    """A folder that passes for a base model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 1024} | config))
    # A header of two bytes, which names no tensor.
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return str(folder)


def make_run(folder: Path, base: str, step: int = 210, **settings: Any) -> str:
    """A run with a checkpoint whose adapter is of `base`; `settings` over PEFT's."""
    told = {"peft_type": "LORA", "r": 10, "bias": "none", "base_model_name_or_path": base} | settings
    files = {"adapter/adapter_config.json": json.dumps(told).encode(), "adapter/adapter_model.safetensors": b"weights"}
    mark = Checkpoint(step=step, base_model=base, base_hash=checkpoints.base_hash(base), fingerprint="f")
    checkpoints.save(LocalStore(str(folder)), mark, files)
    return str(folder)
