"""What kb_ray says of itself while it runs: text for people or one JSON object a line, never with a secret in it.

Text is as it always was: results on stdout, warnings on stderr. As JSON everything goes to stderr, each line with
the id of the run and, where it is about one, of the episode. Does not know what is said, nor who reads it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from kb_ray import cluster, env_vars

Format = Literal["text", "json"]
_HIDDEN = "***"
_SHORTEST_SECRET = 6
"""Shorter values are no secrets worth the name, and would be found inside ordinary words."""
_TELLING = re.compile(
    r"""(?ix)
    ( \bauthorization[\\"']*\s*[:=]\s*[\\"']*(?:(?:basic|bearer|token|apikey)\s+)?
      | \bx-[\w-]*(?:key|token)[\\"']*\s*[:=]\s*[\\"']*
      | \bbearer\s+ ) [^\s\\"',]+
    | ( [?&][\w.-]*(?:key|token|secret|password|passwd|signature|credential)= ) [^\s"'&\#,]+
    | ( ://[^/\s:@]+: ) [^\s@/]+ (?=@)
    """
)
"""What a header of a request brings to be let in, a key or token in a query, or the password in a URL."""
_log = logging.getLogger("kb_ray")
_episode: ContextVar[str | None] = ContextVar("kb_ray_episode", default=None)


class _Saying:
    """How this process speaks; a process has one standard output."""

    format: Format = "text"
    run_id: str | None = None
    secrets: tuple[str, ...] = ()


def setup(wanted: Format, *secrets: str | None) -> None:
    """From now on this process speaks so. `secrets` are hidden, as are those in the environment and the cluster's
    token, which Ray reads from a file too."""
    _Saying.format = wanted
    named = (os.environ.get(name) for name in env_vars.SECRETS)
    known = {value for value in (*secrets, *named, cluster.token()) if value and len(value) >= _SHORTEST_SECRET}
    _Saying.secrets = tuple(sorted(known, key=len, reverse=True))
    _OUTPUT.setFormatter(JsonLines() if wanted == "json" else Text())
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    if _OUTPUT not in root.handlers:
        root.addHandler(_OUTPUT)
    _log.setLevel(logging.INFO if wanted == "json" else logging.NOTSET)


def name_run(run_id: str) -> None:
    """The run that all lines from now on are about."""
    _Saying.run_id = run_id


def as_json() -> bool:
    """Whether lines are JSON."""
    return _Saying.format == "json"


@contextmanager
def about(episode_id: str) -> Iterator[None]:
    """Lines from within are about this episode, also those from what is awaited inside and from its threads."""
    token = _episode.set(episode_id)
    try:
        yield
    finally:
        _episode.reset(token)


def say(text: str, event: str, **fields: Any) -> None:
    """Something that a person starting the command wants to read: stdout, or a line of JSON."""
    if as_json():
        tell(text, event, **fields)
    else:
        print(hide(text), flush=True)


def warn(text: str, event: str) -> None:
    """The same for what went wrong: stderr, or a line of JSON."""
    if as_json():
        _log.warning("%s", text, extra={"fields": {"event": event}})
    else:
        print(hide(text), file=sys.stderr)


def tell(text: str, event: str, **fields: Any) -> None:
    """A line of JSON with these fields; as text it is not said."""
    _log.info("%s", text, extra={"fields": {"event": event, **fields}})


def hide(text: str) -> str:
    """`text` without the secrets that this process knows, and without what looks like one."""
    for secret in _Saying.secrets:
        text = text.replace(secret, _HIDDEN)
    return _TELLING.sub(lambda found: (found[1] or found[2] or found[3]) + _HIDDEN, text)


class Text(logging.Formatter):
    """`LEVEL logger: message`."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One record, secrets hidden."""
        return hide(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, run_id, episode_id, what the record brings, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, secrets hidden, without line breaks."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "run_id": _Saying.run_id,
        }
        if (episode := _episode.get()) is not None:
            line["episode_id"] = episode
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # ASCII: a model can emit half of a surrogate pair, which no stream takes as it is.
        return json.dumps(_hidden(line), default=str)


class _ToStderr(logging.Handler):
    """Writes to what is stderr at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


_OUTPUT = _ToStderr()


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {str(key): _hidden(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item) for item in value]
    # JSON has no word for what is not a number.
    return None if isinstance(value, float) and not math.isfinite(value) else value
