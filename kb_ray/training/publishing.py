"""Steps of a run as adapters that a model server can load: each whole, and under a name that is never used again.

    RUN-START-step000012/adapter_model.safetensors
    RUN-START-step000012/adapter_config.json        last: ray.serve.llm takes a folder with it for an adapter

A server keeps what it has loaded under a name for as long as it lives, also after the files are gone. A run that goes
on from a checkpoint takes steps once more and to other weights, so that each start of a run has names of its own. Knows
PEFT's files and a store; no server and no request.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kb_ray.checkpoints import ADAPTER
from kb_ray.errors import ConfigError, StoreError
from kb_ray.learn.stepping import Trainee
from kb_ray.traces.store import Store
from kb_ray.training.keeping import adapter_files

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_START = re.compile(r"[A-Za-z0-9]{1,32}")
KEPT = 4
"""Adapters of a run that stay in the store: the batch under way and the one begun ahead must still find their own."""


class Publisher:
    """Puts adapters of one start of a run where a server looks for them."""

    def __init__(
        self, store: Store, served: str, run: str, start: str, may_write: Callable[[], None] = lambda: None
    ) -> None:
        """`store`: the server's `dynamic_lora_loading_path`; `served`: the base model's name at the server; `start`: of
        letters and digits, of no other start of the run. `may_write` raises where a later start writes now.

        ConfigError where these make no name.
        """
        if not _NAME.fullmatch(run) or not _START.fullmatch(start):
            raise ConfigError(f"the run's name {run!r} must be of letters, digits, '.', '_' and '-'")
        self._store, self._served, self._run, self._start, self._may_write = store, served, run, start, may_write
        self._there: list[str] | None = None

    def publish(self, learner: Trainee) -> str:
        """Writes the learner's adapter as it is; its name in requests. StoreError where the store fails, after which it
        may be called again, or holds something else under that name."""
        there = self._earlier() if self._there is None else self._there
        folder = f"{self._run}-{self._start}-step{learner.steps:06d}"
        files = {name.removeprefix(f"{ADAPTER}/"): data for name, data in adapter_files(learner).items()}
        for name in (_WEIGHTS, _CONFIG):
            self._put(f"{folder}/{name}", files[name])
        self._there = self._pruned([name for name in there if name != folder] + [folder])
        return f"{self._served}:{folder}"

    def _put(self, key: str, data: bytes) -> None:
        # "Existed" is success where it is this: an earlier try of the same put landed.
        if not self._store.put_if_absent(key, data) and self._store.get(key) != data:
            raise StoreError(f"{self._store.uri}/{key} holds another adapter: start again, under another name")

    def _earlier(self) -> list[str]:
        """Adapters of the run's earlier starts.

        They leave before all of this start's: nobody draws from them but a start that has lost its output. Asked for
        once, while the output is known to be this start's, so that it never sees those of a later one.
        """
        own = re.compile(rf"({re.escape(self._run)}-{_START.pattern}-step\d+)/{re.escape(_WEIGHTS)}")
        found = [match[1] for key in self._store.list(f"{self._run}-") if (match := own.fullmatch(key))]
        self._may_write()
        return sorted(found)

    def _pruned(self, there: list[str]) -> list[str]:
        """The last of these, as they were published; the others are removed, the mark of an adapter first."""
        for folder in there[:-KEPT]:
            for name in (_CONFIG, _WEIGHTS):
                self._store.delete(f"{folder}/{name}")
        return there[-KEPT:]
