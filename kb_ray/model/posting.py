"""Requests to a model server until one is answered: connections, how many at once, time limits and tries again.

Knows HTTP and nothing of what is asked or answered.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeVar

import httpx

from kb_ray.errors import ConfigError, ModelError
from kb_ray.model import wire

CONNECT_TIMEOUT_S = 10.0
_CONNECTIONS = 4
"""Of one client."""
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
RETRY_AFTER_MAX_S = 120.0
"""The longest wait that a server's Retry-After may ask for."""
TELL_AFTER_S, TELL_EVERY_S = 30.0, 60.0
"""For how long nothing but failures is silently tried again, and how often it is told from then on."""
LONGEST_ANSWER = 64 << 20
"""Bytes of one answer that are read: many times what a whole window of tokens takes, with their probabilities."""
T = TypeVar("T")
_log = logging.getLogger("kb_ray.model")


class Tries(NamedTuple):
    """How patient it is."""

    timeout_s: float = 600.0
    """Of one try."""
    max_retries: int = 8
    max_concurrent: int = 10


class _Transient(Exception):
    """This try failed; another may not. `wait_s`: how long the server asked to wait."""

    def __init__(self, what: str, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class _Silence:
    """Tells that a server gives nothing but failures, and when it answers again."""

    def __init__(self, shown: str) -> None:
        self._shown, self._tries = shown, 0
        self._since = self._tell = 0.0

    def failed(self, what: str) -> None:
        now = time.monotonic()
        if not self._tries:
            self._since, self._tell = now, now + TELL_AFTER_S
        self._tries += 1
        if now >= self._tell:
            self._tell = now + TELL_EVERY_S
            _log.warning(
                "no answer from %s for %.0f s: %d tries failed, the last gave %s; it goes on trying",
                self._shown, now - self._since, self._tries, what,
            )  # fmt: skip

    def answered(self) -> None:
        if self._tries and self._tell > self._since + TELL_AFTER_S:
            _log.warning("%s answers again", self._shown)
        self._tries = 0


class Posting:
    """Posts to one server, at most `tries.max_concurrent` at once.

    One try lasts `timeout_s` seconds at most. 408, 409, 425, 429, 5xx, timeouts, broken connections and answers that
    cannot be read (`wire.Malformed`) are tried again up to `max_retries` times: after 1, 2, 4, ... 30 s, each
    shortened at random by up to half, or after what Retry-After asks for. A warning tells where nothing else comes.
    """

    def __init__(self, base_url: str, api_key: str | None, tries: Tries) -> None:
        """ConfigError where the address or the key is none."""
        self.url = _checked_url(base_url)
        self.shown = _without_password(self.url)
        """What is said of it, in messages that traces keep too."""
        self._tries, self._silence = tries, _Silence(self.shown)
        self._places = asyncio.Semaphore(tries.max_concurrent)
        self._clients = _clients(_headers(api_key), tries.max_concurrent)
        self._under_way = dict.fromkeys(self._clients, 0)
        self.http = self._clients[0]

    async def post(self, path: str, body: dict[str, object], read: Callable[[bytes], T], who: str) -> tuple[T, float]:
        """(what `read` makes of the answer, seconds without the wait for a free place).

        ContextError when the prompt and the answer asked for exceed the model's window, ModelError for other refusals
        and when all tries failed; `who` is named then.
        """
        async with self._places:
            started = time.monotonic()
            for failures in range(self._tries.max_retries + 1):
                try:
                    answer = read(await self._once(path, body))
                    self._silence.answered()
                    return answer, time.monotonic() - started
                except wire.Malformed as failure:
                    what, asked_s = str(failure), None
                except _Transient as failure:
                    what, asked_s = str(failure), failure.wait_s
                self._silence.failed(what)
                if failures < self._tries.max_retries:
                    await asyncio.sleep(backoff_s(failures, asked_s))
        raise ModelError(
            f"{who} at {self.shown}: no answer after {self._tries.max_retries + 1} tries in "
            f"{time.monotonic() - started:.0f} s, the last gave {what}"
        )

    async def _once(self, path: str, body: dict[str, object]) -> bytes:
        client = min(self._clients, key=self._under_way.__getitem__)
        self._under_way[client] += 1
        try:
            async with asyncio.timeout(self._tries.timeout_s):
                async with client.stream("POST", f"{self.url}/{path}", json=body) as response:
                    content = await _content(response)
        except TimeoutError:
            raise _Transient(f"nothing for {self._tries.timeout_s:g} s") from None
        except httpx.RequestError as error:
            raise _Transient(reason(error)) from error
        finally:
            self._under_way[client] -= 1
        if response.is_success:
            return content
        if wire.may_retry(response.status_code):
            what = f"status {response.status_code}: {wire.words(content)}"
            raise _Transient(what, retry_after_s(response.headers.get("retry-after"), _now()))
        raise wire.refusal(response.status_code, content, self.shown)

    async def aclose(self) -> None:
        """Closes the connections."""
        for client in self._clients:
            await client.aclose()


async def _content(response: httpx.Response) -> bytes:
    """The body. Transient where it has no end."""
    read = bytearray()
    async for piece in response.aiter_bytes():
        read += piece
        if len(read) > LONGEST_ANSWER:
            raise _Transient(f"more than {LONGEST_ANSWER >> 20} MiB")
    return bytes(read)


def _clients(headers: dict[str, str], connections: int) -> tuple[httpx.AsyncClient, ...]:
    """So many connections, few to a client: each request looks at all connections of its client, several times."""
    limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
    context = httpx.create_ssl_context()
    return tuple(
        httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=limits,
            verify=context,
            follow_redirects=True,
        )
        for _ in range(-(-connections // _CONNECTIONS))
    )


def backoff_s(
    failures: int, asked_s: float | None = None, draw: Callable[[float, float], float] = random.uniform
) -> float:
    """Seconds to wait after `failures` + 1 failed tries. Never less than the server asked for.

    Random, so that many requests refused together do not come back together.
    """
    own: float = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0**failures)
    if asked_s is None:
        return draw(own / 2, own)
    return min(asked_s, RETRY_AFTER_MAX_S) + draw(0.0, own / 2)


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for (a number or a date); None when it says nothing usable."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - now.timestamp())


def _now() -> datetime:
    return datetime.now(UTC)


def reason(error: httpx.RequestError) -> str:
    """httpx's words; some of its errors have none, then the kind of error."""
    return str(error) or type(error).__name__


def _checked_url(base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"--vllm-url {base_url!r} is no http address: pass one like http://localhost:8000/v1")
    return base_url.rstrip("/")


def _without_password(url: str) -> str:
    parsed = httpx.URL(url)
    return str(parsed.copy_with(userinfo=b"")) if parsed.userinfo else url


def _headers(api_key: str | None) -> dict[str, str]:
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("the API key has characters that no header can carry: check --api-key and VLLM_API_KEY")
    return {"Authorization": f"Bearer {api_key}"}
