"""Gathers finished episodes and writes them as parts, in the background, through outages of the store.

Does not know where the store is, nor which episodes are wanted. An episode is safe once `written` counts it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from kb_ray.errors import StoreError
from kb_ray.records import Episode
from kb_ray.traces.layout import part_key
from kb_ray.traces.outages import GIVE_UP_S, Tries
from kb_ray.traces.part_index import FACTS, PARTS_PER_INDEX, write_index
from kb_ray.traces.schema import encode, table_of
from kb_ray.traces.store import Store

_log = logging.getLogger(__name__)


@dataclass
class _Batch:
    """Episodes that will be one part."""

    episodes: list[Episode] = field(default_factory=list)
    size: int = 0
    opened: float = field(default_factory=time.monotonic)


class TraceSink:
    """Thread-safe. A part is written every `save_interval` episodes, `max_bytes` of text or `max_seconds`.

    While the store is away, writes are repeated with growing pauses for `give_up_s` (a minute where it
    answers but refuses); `add` then blocks once `max_waiting` episodes or eight times `max_bytes` wait.
    `may_write` is asked before each put: StoreUnavailable from it counts as an outage, LeaseLost is final.
    """

    def __init__(
        self,
        store: Store,
        save_interval: int = 10,
        *,
        max_bytes: int = 32 * 1024**2,
        max_seconds: float = 60.0,
        give_up_s: float = GIVE_UP_S,
        max_waiting: int = 1000,
        may_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._save_interval, self._max_bytes, self._max_seconds = save_interval, max_bytes, max_seconds
        self._give_up_s, self._may_write = give_up_s, may_write
        self._max_waiting = max(max_waiting, save_interval)
        self._changed = threading.Condition()
        self._open = _Batch()
        self._sealed: deque[_Batch] = deque()
        self._waiting = self._waiting_bytes = 0
        self._hurry = self._closing = self._closed = False
        self._error: StoreError | None = None
        self._unindexed: list[tuple[str, pa.Table]] = []
        self.written = 0
        """Episodes committed."""
        self.parts = 0
        """Parts committed."""
        self.bytes = 0
        """Bytes of the parts committed."""
        self._thread = threading.Thread(target=self._run, name="trace-sink", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Episodes added and not committed yet."""
        return self._waiting

    def add(self, episode: Episode) -> None:
        """Take a finished episode; returns at once unless too many wait already.

        StoreError once the sink has given up: nothing that it took since the last part is saved.
        """
        size = _text_size(episode)
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._closing or not self._full())
            self._raise_error()
            if self._closing:
                raise StoreError(f"trace store {self._store.uri}: the sink is closed")
            if not self._open.episodes:
                self._open = _Batch()
            self._open.episodes.append(episode)
            self._open.size += size
            self._waiting += 1
            self._waiting_bytes += size
            if len(self._open.episodes) >= self._save_interval or self._open.size >= self._max_bytes:
                self._seal()
            self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> None:
        """Commit what was added so far. StoreError if that fails or takes over `timeout` seconds."""
        with self._changed:
            self._seal()
            goal = self.written + self._waiting
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: self._error or self.written >= goal, timeout)
            self._raise_error()
            if not done:
                raise StoreError(
                    f"trace store {self._store.uri}: {self._waiting} finished episodes not saved within "
                    f"{timeout:.0f} s; start the same command again to redo them"
                )

    def close(self, timeout: float | None = None) -> None:
        """Flush, then end the background thread. Further calls do nothing."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        try:
            self.flush(timeout)
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()

    def _full(self) -> bool:
        return self._waiting >= self._max_waiting or self._waiting_bytes >= 8 * self._max_bytes

    def _seal(self) -> None:
        if self._open.episodes:
            self._sealed.append(self._open)
            self._open = _Batch()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise StoreError(str(self._error)) from self._error

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                written = self._commit(batch)
            except Exception as error:
                with self._changed:
                    self._error = error if isinstance(error, StoreError) else StoreError(f"trace sink: {error!r}")
                    self._changed.notify_all()
                return
            with self._changed:
                self.written += len(batch.episodes)
                self.parts += 1
                self.bytes += written
                self._waiting -= len(batch.episodes)
                self._waiting_bytes -= batch.size
                self._changed.notify_all()

    def _next_batch(self) -> _Batch | None:
        """The next batch to write, sealing the open one when it is old; None once closed and all is done."""
        with self._changed:
            while not self._sealed:
                self._hurry = False
                if self._closed:
                    return None
                age = time.monotonic() - self._open.opened
                if self._open.episodes and age >= self._max_seconds:
                    self._seal()
                else:
                    self._changed.wait(self._max_seconds - age if self._open.episodes else None)
            return self._sealed.popleft()

    def _commit(self, batch: _Batch) -> int:
        """Write one part, exactly once however often it takes; returns its size in bytes."""
        table = table_of(batch.episodes)
        data = encode(table)
        key = part_key(data)
        tries = Tries(_log.warning, self._give_up_s)
        while True:
            try:
                # "Existed" is success: the key holds the content's hash, so an earlier try of ours landed.
                self._may_write()
                self._store.put_if_absent(key, data)
            except StoreError as error:
                if self._closed and tries.failing:
                    raise
                self._rest(tries.pause(error, f"{self._waiting} episodes wait, "))
            else:
                tries.done(self._store.uri)
                self._note(key, table)
                return len(data)

    def _note(self, key: str, table: pa.Table) -> None:
        """Tells of the parts that were written, many at once; it only saves later starts time."""
        self._unindexed.append((key, table.select(FACTS)))
        if len(self._unindexed) >= PARTS_PER_INDEX:
            try:
                write_index(self._store, self._unindexed)
            except StoreError as error:
                _log.debug("%s", error)
            self._unindexed = []

    def _rest(self, pause: float) -> None:
        """Wait before the next try; a flush or close that begins meanwhile cuts the wait short."""
        with self._changed:
            self._changed.wait_for(lambda: self._hurry or self._closed, pause)
            self._hurry = False


def _text_size(episode: Episode) -> int:
    """About how many characters an episode holds: cheap, for deciding when to write."""
    messages = sum(len(message.content) + len(message.reasoning or "") for message in episode.messages)
    answers = (turn.completion for turn in episode.turns)
    turns = sum(len(a.text) + len(a.reasoning or "") + 16 * len(a.token_ids or ()) for a in answers)
    return messages + turns + len(episode.task.reference_code)
