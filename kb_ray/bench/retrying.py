"""When a request to the HTTP service is sent again, and how long is waited before (pure).

Busy is not broken: 429 is waited out as told, up to a total. A service that fails, or cannot be reached, is asked again
and again too, less and less often, for as long as the restart of a tunnel, a proxy or a head takes. Does not know what
is sent, or how.
"""

from __future__ import annotations

from dataclasses import dataclass

from kb_ray.errors import ConfigError

BROKEN = (500, 502, 503, 504)
"""Status codes by which a service, or a proxy before it, says that it failed."""
_LONGEST_PAUSE_S = 30.0
_TO_FIND_NOBODY_S = 10.0


@dataclass(frozen=True)
class Patience:
    """How long a client goes on with one request."""

    busy_s: float = 3600.0
    """Seconds of waiting for a full queue, all together."""
    broken_s: float = 300.0
    """Seconds of one absence: the service fails, or the way to it is lost. It begins where it is noticed, however long
    the request had rightly waited, and ends where the service says that it is busy or keeps the request again."""
    tries: int = 5
    """Tries of a request that the service takes without a verdict: nothing is answered within the client's `answer_s`,
    its own word is that it failed, or the connection is lost after it kept the request for longer than `kept_s`. That
    may be for this request, and each try has candidates' time."""
    pause_s: float = 0.5
    """Before the second try; doubled after each."""

    def __post_init__(self) -> None:
        """ConfigError for what no request could be sent by."""
        for name in ("busy_s", "broken_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"patience: {name} is {getattr(self, name)}: give 0 or more seconds")
        if not self.pause_s > 0:
            raise ConfigError(f"patience: pause_s is {self.pause_s}: give seconds above 0")
        if not self.tries >= 1:
            raise ConfigError(f"patience: tries is {self.tries}: give 1 or more")

    @property
    def kept_s(self) -> float:
        """A request that came to nothing after more than this had been waiting or was being judged: it is longer than a
        proxy takes to find nobody, and no shorter than what leaves an absence all of its tries."""
        return max(_TO_FIND_NOBODY_S, self.broken_s / max(1, self.tries - 1))


@dataclass
class Attempts:
    """What became of one request so far. Its methods return the seconds to wait, or None: give up. `jitter`: 0 to 1,
    so that all who were turned away do not come back together."""

    patience: Patience
    waited_s: float = 0.0
    """For a full queue."""
    failures: int = 0
    """All of them."""
    failed: int = 0
    """Those of this absence."""
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
        """The service is away, which took `took_s` to find out."""
        self._broken_s += took_s if self.failed else 0.0
        self.failed += 1
        self.failures += 1
        doubled = min(_LONGEST_PAUSE_S, self.patience.pause_s * 2.0 ** min(self.failed - 1, 16))
        seconds = min(_LONGEST_PAUSE_S, max(doubled, _seconds(retry_after) or 0.0)) * (1 + jitter / 2)
        # The last try is at the end of the patience, not before it.
        seconds = min(seconds, self.patience.broken_s - self._broken_s)
        if seconds <= 0:
            return None
        self._broken_s += seconds
        return seconds

    def lost(self, retry_after: str | None, jitter: float, took_s: float) -> float | None:
        """A connection that was there is lost after `took_s`, or a proxy answers in place of the service."""
        go_on = self.fruitless if took_s > self.patience.kept_s else self.broken
        return go_on(retry_after, jitter, took_s)

    def fruitless(self, retry_after: str | None, jitter: float, took_s: float = 0.0) -> float | None:
        """The service took the request, and after `took_s` no verdict came of it."""
        if took_s > self.patience.kept_s:
            self.failed, self._broken_s = 0, 0.0
        self._fruitless += 1
        pause = self.broken(retry_after, jitter)
        return None if self._fruitless >= self.patience.tries else pause


def _seconds(retry_after: str | None) -> float | None:
    """The header as this service gives it: whole seconds. A date, as proxies may give, counts as nothing."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
