"""What each start of a run last said of itself: one small file per start, beside the parts.

    starts/start-*.json       rewritten by its own start while that lives, a last time when it ends

For people who look at a store from outside; resume and readers of episodes do without. Does not know what a start
does, nor how old news may be before it is doubted.
"""

from __future__ import annotations

import secrets
from datetime import datetime

from pydantic import ConfigDict, ValidationError, field_validator

from kb_ray.process_identity import lives
from kb_ray.records import Record
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import Store

STARTS_PREFIX = "starts/"


class Start(Record):
    """One start of a run. Times are UTC, ISO 8601. What a later kb_ray adds is passed over."""

    model_config = ConfigDict(extra="ignore")

    run_id: str
    host: str
    pid: int
    began_at: str
    seen_at: str
    """When this was written."""
    every_s: float
    """Seconds between two writes while the start lives."""
    planned: int
    """Episodes that the run will hold, as this start planned it."""
    earlier: int
    """Of those, finished by earlier starts."""
    finished: int = 0
    """Finished by this start, second attempts included."""
    generating: int = 0
    """Requests with the model then."""
    waiting_on_model: int = 0
    """Episodes with a question that was not answered, those with the model included."""
    waiting_on_bench: int = 0
    """Episodes with a candidate that had no verdict."""
    ending: str | None = None
    """`done`, `budget`, `signal`, `failing`, or `failed` for an error of our own; None while it lives. In no file, only
    from `seen_from_here`: `gone`."""
    message: str = ""
    """Why it ended, in one line."""
    shard: str | None = None
    """`I/N` where it took a part of the run."""
    run_planned: int | None = None
    """Then: episodes that all shards hold together, as this start planned it."""
    plan: str | None = None
    """Key of the plan, of all shards."""
    left_out: tuple[str, ...] = ()
    """Tasks that it was asked for and did not run, since they are flagged."""
    place: str = ""
    born: int | None = None
    """Which process it is, as `process_identity` says."""

    @field_validator("shard")
    @classmethod
    def _a_shard(cls, shard: str | None) -> str | None:
        Shard.of(shard)
        return shard


def seen_from_here(start: Start) -> Start:
    """The start, ended as `gone` where it told no end and its process was one of this machine that lives no more."""
    if start.ending is None and lives(start.pid, start.born, start.place) is False:
        return start.model_copy(update={"ending": "gone"})
    return start


def start_key(now: datetime) -> str:
    """The key of a start that begins now: its time, so that keys sort by age, and a random part."""
    return f"{STARTS_PREFIX}start-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}.json"


def write_start(store: Store, key: str, start: Start) -> None:
    """Write or rewrite it, whole. StoreError where the store fails."""
    store.replace(key, start.model_dump_json(indent=2).encode())


def read_starts(store: Store) -> list[Start]:
    """All starts, oldest first; one that cannot be understood is left out. StoreError where the store fails."""
    return starts_and_unread(store)[0]


def starts_and_unread(store: Store) -> tuple[list[Start], list[str]]:
    """(starts, oldest first; keys of those that cannot be understood). StoreError where the store fails."""
    found: list[Start] = []
    unread = []
    for key in store.list(STARTS_PREFIX):
        data = store.get(key)
        try:
            found += [Start.model_validate_json(data)] if data is not None else []
        except ValidationError:
            unread.append(key)
    return found, unread
