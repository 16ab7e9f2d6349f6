"""When a request to the HTTP service is sent again, and how long is waited before (pure).

Busy is not broken: 429 is waited out as told, up to a total; failures of the service or of the way to it are tried a
few times. Does not know what is sent, or how.
"""

from __future__ import annotations

from dataclasses import dataclass

BROKEN = (500, 502, 503, 504)
"""Status codes by which a service, or a proxy before it, says that it failed."""
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True)
class Patience:
    """How long a client goes on."""

    busy_s: float = 3600.0
    """Seconds of waiting for a full queue, all together."""
    tries: int = 5
    """Tries of a request that failed on the service's side."""
    pause_s: float = 0.5
    """Before the second try; doubled after each."""


@dataclass
class Attempts:
    """What became of one request so far. `wait_for` returns the seconds to wait, or None: give up."""

    patience: Patience
    waited_s: float = 0.0
    failed: int = 0

    def busy(self, retry_after: str | None, jitter: float) -> float | None:
        """The queue is full. `jitter`: 0 to 1, so that all who were turned away do not come back together."""
        seconds = (_seconds(retry_after) or self.patience.pause_s) * (1 + jitter / 2)
        if self.waited_s + seconds > self.patience.busy_s:
            return None
        self.waited_s += seconds
        return seconds

    def broken(self, retry_after: str | None, jitter: float) -> float | None:
        """The service failed, or could not be reached."""
        self.failed += 1
        if self.failed >= self.patience.tries:
            return None
        doubled = self.patience.pause_s * 2.0 ** (self.failed - 1)
        return min(_LONGEST_PAUSE_S, max(doubled, _seconds(retry_after) or 0.0)) * (1 + jitter / 2)


def _seconds(retry_after: str | None) -> float | None:
    """The header as this service gives it: whole seconds. A date, as proxies may give, counts as nothing."""
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else None
