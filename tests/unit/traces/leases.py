"""Leases with short terms for tests, and holders that look as if they lived on another machine. Holds no test."""

from __future__ import annotations

from typing import Any

from kb_ray.traces.lease import Lease, key_of
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import Store

TERM_S = 1.0
LONG_S = 60.0
"""A term that a busy machine does not take for whatever is done at once."""
EVERY_S = 0.2


def lease(store: Store, shard: str | None = None, *, elsewhere: bool = True, told: list[str] | None = None,
          run_id: str = "run", **more: Any) -> Lease:  # fmt: skip
    """A lease of one second; `elsewhere`: of a process that cannot be seen from here."""
    said = told if told is not None else []
    settings = {"renew_every_s": EVERY_S, "term_s": TERM_S, **more}
    made = Lease(store, Shard.of(shard), run_id, tell=said.append, **settings)
    if elsewhere:
        made._holder = made._holder.model_copy(update={"host": "elsewhere", "place": "another machine"})
    return made


def stop_moving(held: Lease) -> None:
    """What a killed process does: no renewal, no release."""
    held._ended.set()
    held._hurry.set()
    assert held._thread is not None
    held._thread.join()


def content(store: Store, shard: str | None = None) -> bytes:
    data = store.get(key_of(Shard.of(shard)))
    assert data is not None
    return data
