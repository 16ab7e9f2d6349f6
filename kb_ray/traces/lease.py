"""Who may write to a store: one start of a run, or one of each shard, for as long as it shows that it lives.

    leases/1-of-1.json        the whole run; leases/2-of-4.json a shard of it

The holder changes its lease every few seconds, each time only if nobody else has (a conditional put). Who wants it
watches: a lease that stays the same for its whole term belongs to nobody and is taken over. Signs of life are changes,
seen by the watcher's own steady clock, never times that somebody wrote down: clocks that jump or differ do no harm. A
holder that could not renew for most of a term stops writing until it has, and for good where another took over. On one
machine a process that is gone is known to be gone at once.

What a lease cannot do: call back a put that is under way while its term ends. Such a part may repeat an episode, and
readers take the first of two. Does not know what is written, nor why.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pydantic import ConfigDict, Field, ValidationError

from kb_ray.errors import ConfigError, StoreError
from kb_ray.process_identity import born, lives, place
from kb_ray.records import Record
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import Store, StoreUnavailable

LEASES_PREFIX = "leases/"
RENEW_EVERY_S = 10.0
TERM_S = 45.0
"""How long a lease lives without a change."""
_MARGIN = 0.25
"""Share of the term by which its holder stops before others may begin."""
_LOOKS = 20
"""How often a watcher looks within a term."""
_KEY = re.compile(rf"{LEASES_PREFIX}(\d+)-of-(\d+)\.json")

Clock = Callable[[], float]


class LeaseLost(StoreError):
    """Another start writes now: this one must not, whatever else it does."""


class Holder(Record):
    """Content of a lease. What a later kb_ray adds to it is passed over: it must still hold others off."""

    model_config = ConfigDict(extra="ignore")

    token: str
    """Drawn by each start."""
    run_id: str
    host: str
    pid: int
    place: str
    born: int | None
    began_at: str
    """UTC, ISO 8601. For people: nothing is concluded from it."""
    term_s: float = Field(gt=0, le=3600)
    beat: int = 0
    """Counts renewals, so that each changes the lease."""
    entering: bool = False
    """Has its key, and still looks whether another is there whose episodes overlap with its own."""
    released: bool = False

    def __str__(self) -> str:
        if not self.token:
            return "somebody whose lease cannot be read"
        return f"run {self.run_id} on {self.host}, process {self.pid}, since {self.began_at}"


def steady() -> float:
    """Seconds that no setting of a clock changes and that pass while a machine sleeps, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def key_of(shard: Shard) -> str:
    """The key of a shard's lease."""
    return f"{LEASES_PREFIX}{shard.index}-of-{shard.count}.json"


class Lease:
    """The right to write to `store` as `shard`. `take` it, ask `check` before each write, `release` it at the end.

    `tell` gets one line where it has to wait.
    """

    def __init__(
        self,
        store: Store,
        shard: Shard,
        run_id: str,
        *,
        tell: Callable[[str], None],
        renew_every_s: float = RENEW_EVERY_S,
        term_s: float = TERM_S,
        clock: Clock = steady,
    ) -> None:
        self._store, self._shard, self._tell = store, shard, tell
        self._when_lost: Callable[[str], None] = lambda line: None
        self._every_s, self._clock, self._key = renew_every_s, clock, key_of(shard)
        pid = os.getpid()
        self._holder = Holder(
            token=secrets.token_hex(8),
            run_id=run_id,
            host=socket.gethostname(),
            pid=pid,
            place=place(),
            born=born(pid),
            began_at=datetime.now(UTC).isoformat(timespec="seconds"),
            term_s=term_s,
            entering=True,
        )
        self._version = ""
        self._entering = True
        self._valid_until = 0.0
        self._lost: str | None = None
        self._hurry, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Waits, a term at most where a holder does not move, until it is ours; False where `stopped` said so.

        ConfigError names the holder that lives, here or of a shard that overlaps with this one.
        """
        if not self._take(self._shard, stopped):
            return False
        self._thread = threading.Thread(target=self._renew_on, name="lease", daemon=True)
        self._thread.start()
        try:
            for other in _shards(self._store):
                if other != self._shard and self._shard.meets(other) and not self._take(other, stopped):
                    self.release()
                    return False
        except BaseException:
            self.release()
            raise
        self._entering = False
        self._hurry.set()
        return True

    def check(self) -> None:
        """Returns where a write may begin now. LeaseLost where it never may again, StoreUnavailable where it is not
        known: since the last renewal most of a term has passed."""
        if self._lost is not None:
            raise LeaseLost(self._lost)
        if self._clock() >= self._valid_until:
            self._hurry.set()
            raise StoreUnavailable(f"trace store {self._store.uri}: {self._key} could not be renewed in time")

    def on_loss(self, tell: Callable[[str], None]) -> None:
        """Has `tell` called, from another thread, with one line when somebody else took over."""
        self._when_lost = tell
        if self._lost is not None:
            tell(self._lost)

    def release(self) -> None:
        """Lets others have it at once, as far as the store answers. Further calls do nothing."""
        if self._thread is None or self._ended.is_set():
            return
        self._ended.set()
        self._hurry.set()
        # On a busy machine a renewal that is under way takes longer than the time between two.
        self._thread.join(max(self._every_s, RENEW_EVERY_S))
        if self._thread.is_alive() or self._lost is not None:
            return
        self._valid_until = 0.0
        try:
            self._store.replace_if(self._key, _bytes(self._holder.model_copy(update={"released": True})), self._version)
        except StoreError:
            # It ends by itself: this process is gone, or a term passes.
            return

    def _take(self, shard: Shard, stopped: Callable[[], bool]) -> bool:
        """Makes our lease ours, and closes one of another shard, so that whoever held it cannot renew it. Of another
        that still looks around, as we do, it waits for the end where that one is to give way."""
        key, keep, watched, since, told = key_of(shard), shard == self._shard, "", 0.0, False
        while not stopped():
            asked = self._clock()
            found = self._store.versioned(key)
            holder = _holder(found[0], self._holder.term_s) if found else None
            if holder is None or holder.released or lives(holder.pid, holder.born, holder.place) is False:
                if self._write(key, found[1] if found else None, keep=keep, asked=asked):
                    return True
                continue
            assert found is not None
            moved = watched not in ("", found[1])
            if watched != found[1]:
                watched, since = found[1], self._clock()
            still, seen = self._clock() - since >= holder.term_s, lives(holder.pid, holder.born, holder.place) or moved
            if seen and (keep or still or not holder.entering or self._shard.yields_to(shard)):
                raise ConfigError(_refusal(self._store.uri, shard, holder))
            if still and not seen:
                if self._write(key, found[1], keep=keep, asked=asked):
                    return True
                watched = ""
                continue
            if not told and (keep or not holder.entering):
                told = True
                self._tell(_waiting(self._store.uri, holder))
            self._ended.wait(holder.term_s / _LOOKS)
        return False

    def _write(self, key: str, version: str | None, *, keep: bool, asked: float) -> bool:
        """Whether the lease, so far of this version or none, is ours now."""
        data = _bytes(self._holder if keep else self._holder.model_copy(update={"released": True}))
        if version is not None:
            written = self._store.replace_if(key, data, version)
        else:
            self._store.put_if_absent(key, data)
            written = None
        if written is None:
            # Refused, or the answer to a put of ours that landed was lost: what is there tells which.
            found = self._store.versioned(key)
            written = found[1] if found and found[0] == data else None
        if written is not None and keep:
            self._version, self._valid_until = written, asked + self._holder.term_s * (1 - _MARGIN)
        return written is not None

    def _renew_on(self) -> None:
        while not self._ended.is_set() and self._lost is None:
            self._hurry.wait(self._every_s)
            self._hurry.clear()
            if not self._ended.is_set():
                self._renew()

    def _renew(self) -> None:
        asked = self._clock()
        self._holder = self._holder.model_copy(update={"beat": self._holder.beat + 1, "entering": self._entering})
        try:
            if self._write(self._key, self._version, keep=True, asked=asked):
                return
            found = self._store.versioned(self._key)
        except StoreError:
            # Away for a while: `check` holds writes back when it lasts, and the next renewal tells.
            self._ended.wait(self._every_s / 4)
            return
        taker = _holder(found[0], 1.0) if found else None
        if taker is not None and taker.token == self._holder.token:
            # An earlier renewal landed after all.
            self._version = found[1] if found else ""
            self._hurry.set()
            return
        by = f"was taken over by {taker}" if taker else "is gone"
        self._lost = (
            f"trace store {self._store.uri}: {self._key} {by}; this start had stopped moving, it writes no more"
        )
        self._when_lost(self._lost)


@contextmanager
def held(store: Store, run_id: str, tell: Callable[[str], None]) -> Iterator[Lease]:
    """The lease of a whole run, within; see `Lease.take`."""
    lease = Lease(store, Shard(), run_id, tell=tell)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()


def _holder(data: bytes, term_s: float) -> Holder:
    """Who holds it; somebody of whom nothing is known, for `term_s`, where it cannot be understood."""
    try:
        return Holder.model_validate_json(data)
    except ValidationError:
        return Holder(token="", run_id="", host="", pid=0, place="", born=None, began_at="", term_s=term_s)


def _shards(store: Store) -> Iterator[Shard]:
    """Those that have a lease, held or not."""
    for found in filter(None, map(_KEY.fullmatch, store.list(LEASES_PREFIX))):
        with suppress(ValueError):
            yield Shard.of(f"{found[1]}/{found[2]}")


def _bytes(holder: Holder) -> bytes:
    return holder.model_dump_json(indent=2).encode()


def _refusal(uri: str, shard: Shard, holder: Holder) -> str:
    of = "" if shard.whole else f", as shard {shard}"
    return (
        f"output {uri} is being written by {holder}{of}: wait for its end or stop it, use another --output, or let "
        "all starts share the run by --shard I/N"
    )


def _waiting(uri: str, holder: Holder) -> str:
    return (
        f"output {uri} was last held by {holder}; it is taken over unless that start shows a sign of life within "
        f"{holder.term_s:.0f} s"
    )
