"""The run that a store belongs to: `run.json`, written once, and the identity of its episodes.

Does not know which settings belong to a fingerprint; it compares what it is given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from kb_ray.errors import ConfigError, StoreError
from kb_ray.records import Record
from kb_ray.traces.columns import SCHEMA_VERSION
from kb_ray.traces.layout import RUN_KEY
from kb_ray.traces.store import Store

OTHER_OUTPUT = "use another --output"
_MAX_NAMED = 6


class RunInfo(Record):
    """Content of `run.json`."""

    run_id: str
    fingerprint: str
    """Hash of `identity`: runs with the same one may continue each other."""
    identity: dict[str, Any]
    """The settings that change what the traces hold, as JSON values."""
    config: dict[str, Any]
    """The whole configuration of the first start, without secrets."""
    versions: dict[str, str]
    """Versions of what took part, by name."""
    schema_version: int = SCHEMA_VERSION
    created_at: str
    """UTC, ISO 8601, of the first start."""


def fingerprint(identity: Mapping[str, Any]) -> str:
    """16 hexadecimal digits over the settings; the order of keys does not count."""
    return _hash(identity)[:16]


def episode_id(task_id: str, sample: int, attempt: int, run_fingerprint: str) -> str:
    """32 hexadecimal digits: the same episode of the same settings has the same id wherever it runs."""
    return _hash([task_id, sample, attempt, run_fingerprint])[:32]


def request_seed(seed: int, task_id: str, sample: int, attempt: int, turn: int) -> int:
    """31-bit seed of one request: repeatable, and different for every turn of every episode."""
    text = json.dumps([seed, task_id, sample, attempt, turn])
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) & 0x7FFF_FFFF


def open_run(store: Store, info: RunInfo) -> RunInfo:
    """Make the store `info`'s run, or join the run that it holds: the stored RunInfo, with its run_id.

    ConfigError where the store holds a run of another fingerprint, naming the settings that differ, and where
    it cannot be written.
    """
    try:
        if store.put_if_absent(RUN_KEY, info.model_dump_json(indent=2).encode()):
            return info
        stored = read_run(store, OTHER_OUTPUT)
    except StoreError as error:
        raise ConfigError(str(error)) from error
    if stored is None:
        raise ConfigError(f"trace store {store.uri}: {RUN_KEY} vanished while starting, start again")
    if stored.fingerprint != info.fingerprint:
        raise ConfigError(
            f"output {store.uri} holds run {stored.run_id} with other settings "
            f"({_differences(stored.identity, info.identity)}): use the same settings to continue it, "
            f"or another --output{_bare(store)}"
        )
    return stored


def read_run(store: Store, otherwise: str = "remove it to read the traces without") -> RunInfo | None:
    """The stored RunInfo; None where the store holds no run. ConfigError where it cannot be understood: `otherwise`
    says what to do where there is no copy of it."""
    data = store.get(RUN_KEY)
    if data is None:
        return None
    try:
        return RunInfo.model_validate_json(data)
    except ValidationError as error:
        raise ConfigError(
            f"trace store {store.uri}: {RUN_KEY} is damaged or of another kb_ray: put a copy of it back, or {otherwise}"
        ) from error


def _bare(store: Store) -> str:
    """What else helps where a start wrote down its settings and no more; empty where there is something to lose."""
    held = [key for key in store.list("") if key != RUN_KEY and not key.startswith("leases/")]
    return "" if held else f"; nothing has come out of it yet, so removing its {RUN_KEY} is a third way"


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """`name: stored -> wanted` for each differing setting, nested names dotted."""
    old, new = dict(_flat(stored)), dict(_flat(wanted))
    names = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    told = [f"{name}: {old.get(name, 'unset')} -> {new.get(name, 'unset')}" for name in names[:_MAX_NAMED]]
    if len(names) > _MAX_NAMED:
        told.append(f"and {len(names) - _MAX_NAMED} more")
    return ", ".join(told) or "written by another version of kb_ray"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True, default=str)


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
