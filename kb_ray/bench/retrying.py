"""When a request to the HTTP service is sent again, and how long is waited before (pure).

Busy is not broken: 429 is waited out as told, up to a total. A service that fails, or cannot be reached, is asked again
and again too, less and less often, for as long as the restart of a tunnel, a proxy or a head takes. Does not know what
is sent, or how.
"""

from __future__ import annotations

from dataclasses import dataclass

BROKEN = (500, 502, 503, 504)
"""Status codes by which a service, or a proxy before it, says that it failed."""
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True)
class Patience:
    """How long a client goes on with one request."""

    busy_s: float = 3600.0
    """Seconds of waiting for a full queue, all together."""
    broken_s: float = 300.0
    """Seconds of waiting while the service fails or the way to it is lost; anew once it has said that it is busy."""
    tries: int = 5
    """Tries of a request that the service takes without a verdict: nothing is answered within the client's `answer_s`,
    or the service's own word is that it failed. That may be for this request, and each try has candidates' time."""
    pause_s: float = 0.5
    """Before the second try; doubled after each."""


@dataclass
class Attempts:
    """What became of one request so far. Its methods return the seconds to wait, or None: give up. `jitter`: 0 to 1,
    so that all who were turned away do not come back together."""

    patience: Patience
    waited_s: float = 0.0
    """For a full queue."""
    failed: int = 0
    """Failures since the service last said something else."""
    _broken_s: float = 0.0
    _fruitless: int = 0

    def busy(self, retry_after: str | None, jitter: float) -> float | None:
        """The queue is full: the service is there."""
        self.failed, self._broken_s = 0, 0.0
        seconds = (_seconds(retry_after) or self.patience.pause_s) * (1 + jitter / 2)
        if self.waited_s + seconds > self.patience.busy_s:
            return None
        self.waited_s += seconds
        return seconds

    def broken(self, retry_after: str | None, jitter: float, took_s: float = 0.0) -> float | None:
        """The service is away, as a proxy says after `took_s`, or could not be reached for so long."""
        self.failed += 1
        self._broken_s += took_s
        doubled = min(_LONGEST_PAUSE_S, self.patience.pause_s * 2.0 ** min(self.failed - 1, 16))
        seconds = min(_LONGEST_PAUSE_S, max(doubled, _seconds(retry_after) or 0.0)) * (1 + jitter / 2)
        # The last try is at the end of the patience, not before it.
        seconds = min(seconds, self.patience.broken_s - self._broken_s)
        if seconds <= 0:
            return None
        self._broken_s += seconds
        return seconds

    def fruitless(self, retry_after: str | None, jitter: float) -> float | None:
        """The service took the request, and gave no verdict in time or said that it failed."""
        self._fruitless += 1
        return None if self._fruitless >= self.patience.tries else self.broken(retry_after, jitter)


def _seconds(retry_after: str | None) -> float | None:
    """The header as this service gives it: whole seconds. A date, as proxies may give, counts as nothing."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
