"""Tells the store, once a minute, that a start of a run is alive, and at its end how it ended.

In a thread of its own that nothing waits for: a store that is away costs a run nothing here. Decides nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kb_ray import logs
from kb_ray.errors import StoreError
from kb_ray.process_identity import born, place
from kb_ray.tally import Tally
from kb_ray.traces.starts import Start, start_key, write_start
from kb_ray.traces.store import Store

_log = logging.getLogger(__name__)
TELL_EVERY_S = 60.0
_LAST_WORD_S = 5.0
_MESSAGE_CHARS = 400


class Presence:
    """One start of a run, from construction to `end`. `about`: what it was asked for, in fields of Start."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        tally: Tally,
        every_s: float = TELL_EVERY_S,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        now = datetime.now(UTC)
        self._store, self._tally, self._key, self._every_s = store, tally, start_key(now), every_s
        self._fixed: dict[str, Any] = {
            "run_id": run_id, "host": socket.gethostname(), "pid": os.getpid(), "began_at": _iso(now),
            "every_s": every_s, "earlier": tally.earlier, "place": place(), "born": born(os.getpid()), **(about or {}),
        }  # fmt: skip
        self._last: tuple[str, str] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)
        self._thread.start()

    def end(self, kind: str, message: str = "", left_out: Iterable[str] = ()) -> None:
        """The last word, which gets a few seconds to arrive. Further calls do nothing."""
        if self._last is None:
            self._fixed["left_out"] = tuple(sorted(left_out))
            self._last = (kind, logs.hide(" ".join(message.split()))[:_MESSAGE_CHARS])
            self._ended.set()
            self._thread.join(_LAST_WORD_S)

    def _run(self) -> None:
        self._tell()
        while not self._ended.wait(self._every_s):
            self._tell()
        self._tell()

    def _tell(self) -> None:
        tally = self._tally
        ending, message = self._last or (None, "")
        start = Start(
            **self._fixed,
            seen_at=_iso(datetime.now(UTC)),
            planned=tally.total,
            finished=tally.finished,
            generating=tally.generating,
            waiting_on_model=tally.waiting_on_model,
            waiting_on_bench=tally.waiting_on_bench,
            ending=ending,
            message=message,
        )
        try:
            write_start(self._store, self._key, start)
        except StoreError as error:
            # The sink says so already, and loudly: this is only about being seen.
            _log.debug("%s", error)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
