"""What comes back from the HTTP service besides verdicts, read: whose word it is, and what is said.

Proxies, gateways and Serve answer for the service while it is away, in JSON too and with any status code. What it
refuses itself it marks in a header, which proxies pass on. Pure; does not know what is made of it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kb_ray.errors import ConfigError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
REFUSAL = "X-KB-Ray-Refusal"
"""Header of each refusal of the service's own."""
FAULT = "X-KB-Ray-Fault"
"""Header of a refusal that is nobody's fault but the reference's."""
_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_MAY_BE_ANY_NUMBER = ("max_abs_error", "max_rel_error")


def own(reply: httpx.Response) -> bool:
    """Whether the service itself says it. Of one that is too old to mark its words it is not known."""
    return REFUSAL in reply.headers


def answered(reply: httpx.Response, kind: type[T]) -> T:
    """The mapping, or list, that a 200 holds; ConfigError where somebody else answers, as for a password."""
    with suppress(ValueError):
        if isinstance(found := reply.json(), kind):
            return found
    raise ConfigError(f"{reply.request.url} answers with something else than a verdict: {said(reply)}")


def said(reply: httpx.Response) -> str:
    """The code, and the one line that goes with it; of a page only its beginning."""
    try:
        line = str(reply.json()["error"])
    except (ValueError, LookupError, TypeError):
        line = " ".join(reply.text.split())[:200]
    return f"{reply.status_code} {line or reply.reason_phrase}"


def nothing_there(reply: httpx.Response) -> str:
    """What a 404 means to whoever gave the URL."""
    path = reply.request.url.raw_path.decode("ascii", "replace")
    return f"{said(reply)}: it has no path {path}, check the URL that the client was given"


def restored(result: dict[str, Any]) -> dict[str, Any]:
    """A verdict's mapping; numbers that JSON has no word for are numbers again."""
    detail = result.get("error_detail")
    if isinstance(detail, dict):
        detail |= {key: _NUMBERS.get(detail[key], detail[key]) for key in _MAY_BE_ANY_NUMBER if key in detail}
    return result
