"""Which episodes a run was asked for: one small file for each plan that a start of it had.

    plans/plan-*.json         task ids and samples, written once; a run that is extended has several

For telling what is missing from what was never wanted; resume does without. Does not know where tasks come from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from kb_ray.traces.store import Store

PLANS_PREFIX = "plans/"

Pairs = frozenset[tuple[str, int]]
"""(task id, sample) of each episode."""


def write_plan(store: Store, pairs: Iterable[tuple[str, int]]) -> str:
    """Keeps the plan, once; its key. The same episodes in another order are the same plan. StoreError."""
    tasks: dict[str, list[int]] = {}
    for task_id, sample in sorted(set(pairs)):
        tasks.setdefault(task_id, []).append(sample)
    data = json.dumps({"tasks": tasks}, indent=None, separators=(",", ":")).encode()
    key = _key(data)
    if store.get(key) != data:
        store.put_if_absent(key, data)
    return key


def _key(data: bytes) -> str:
    return f"{PLANS_PREFIX}plan-{hashlib.sha256(data).hexdigest()[:16]}.json"


def read_plans(store: Store) -> tuple[dict[str, Pairs], list[str]]:
    """(plans by key, keys of those that cannot be understood). StoreError where the store fails."""
    plans: dict[str, Pairs] = {}
    damaged = []
    for key in store.list(PLANS_PREFIX):
        data = store.get(key)
        if data is None:
            continue
        try:
            pairs = _pairs(data)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            damaged.append(key)
            continue
        if key == _key(data):
            plans[key] = pairs
        else:
            damaged.append(key)
    return plans, damaged


def _pairs(data: bytes) -> Pairs:
    tasks = json.loads(data)["tasks"]
    return frozenset((str(task_id), int(sample)) for task_id, samples in tasks.items() for sample in samples)
