"""Steps of a run as adapters that a model server can load: each once, whole, and under a name that is never used again.

    RUN-step000012/adapter_model.safetensors
    RUN-step000012/adapter_config.json        last: ray.serve.llm takes a folder with it for an adapter

A server keeps what it has loaded under a name for as long as it lives, so that a name must never come to mean other
weights: a step that is taken once more after a crash is published as RUN-step000012.1. Knows PEFT's files and a store;
no server and no request.
"""

from __future__ import annotations

import itertools
import re

from kb_ray.checkpoints import ADAPTER
from kb_ray.errors import ConfigError
from kb_ray.learn.stepping import Trainee
from kb_ray.traces.store import Store
from kb_ray.training.keeping import adapter_files

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
KEPT = 4
"""Adapters of a run that stay in the store; a draw under way must still find its own."""


class Publisher:
    """Puts adapters of one run where a server looks for them."""

    def __init__(self, store: Store, served: str, run: str) -> None:
        """`store`: the server's `dynamic_lora_loading_path`; `served`: the base model's name at the server."""
        if not _NAME.fullmatch(run):
            raise ConfigError(f"the run's name {run!r} must be of letters, digits, '.', '_' and '-'")
        self._store, self._served, self._run = store, served, run

    def publish(self, learner: Trainee) -> str:
        """Writes the learner's adapter as it is; its name in requests."""
        files = {name.removeprefix(f"{ADAPTER}/"): data for name, data in adapter_files(learner).items()}
        first = f"{self._run}-step{learner.steps:06d}"
        names = itertools.chain((first,), (f"{first}.{n}" for n in itertools.count(1)))
        folder = next(name for name in names if self._put(name, files))
        self._prune(folder)
        return f"{self._served}:{folder}"

    def _put(self, folder: str, files: dict[str, bytes]) -> bool:
        """Whether the adapter is there now, and nothing else under its name."""
        for name in (_WEIGHTS, _CONFIG):
            key = f"{folder}/{name}"
            if not self._store.put_if_absent(key, files[name]) and self._store.get(key) != files[name]:
                return False
        return True

    def _prune(self, newest: str) -> None:
        """All but the last of this run, the mark of an adapter first."""
        own = re.compile(rf"({re.escape(self._run)}-step\d+(?:\.\d+)?)/{re.escape(_WEIGHTS)}")
        there = [match[1] for key in self._store.list(f"{self._run}-step") if (match := own.fullmatch(key))]
        for folder in sorted(set(there) - {newest}, key=_order)[: 1 - KEPT]:
            for name in (_CONFIG, _WEIGHTS):
                self._store.delete(f"{folder}/{name}")


def _order(folder: str) -> tuple[int, int]:
    step, _, again = folder.rpartition("-step")[2].partition(".")
    return int(step), int(again or 0)
