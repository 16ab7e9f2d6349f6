"""A model behind an OpenAI-compatible HTTP server: vLLM, a Serve application, or any other.

Owns connections, the number of requests in flight, time limits and retries. Knows nothing of what a request
is for, and nothing of the format, which is wire.py's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

import httpx

from kb_ray.errors import ConfigError, ModelError
from kb_ray.model import wire
from kb_ray.model.completer import ModelInfo, Request
from kb_ray.records import Completion, Message

CHECK_TIMEOUT_S = 8.0
"""So that a refusal, the command's own start included, takes less than 10 s."""
COUNT_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
RETRY_AFTER_MAX_S = 120.0
"""The longest wait that a server's Retry-After may ask for."""

_NOT_UNDERSTOOD = frozenset({400, 422})
_NO_ROUTE = frozenset({401, 403, 404, 405, 501})


class _Transient(Exception):
    """This try failed; another may not. `wait_s`: how long the server asked to wait."""

    def __init__(self, what: str, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class OpenAICompleter:
    """Answers requests through `POST {base_url}/chat/completions`, at most `max_concurrent` at once.

    One try lasts `timeout_s` seconds at most. 408, 409, 425, 429, 5xx, timeouts, broken connections and
    answers that are no completion are tried again up to `max_retries` times: after 1, 2, 4, ... 30 s, each
    shortened at random by up to half, or after what Retry-After asks for. `model` may be empty until
    `check` has found the only one served.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        timeout_s: float = 600.0,
        max_retries: int = 8,
        max_concurrent: int = 10,
    ) -> None:
        self._url = _checked_url(base_url)
        self.base_url = _without_password(self._url)
        """What is said of it, in messages that traces keep too."""
        self.model = model
        self.window: int | None = None
        self._counts: Literal["chat", "text"] | None = "chat"
        self._has_key = bool(api_key)
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._places = asyncio.Semaphore(max_concurrent)
        self._client = httpx.AsyncClient(
            headers=_headers(api_key),
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=max_concurrent, max_keepalive_connections=max_concurrent),
            follow_redirects=True,
        )

    async def complete(self, request: Request) -> Completion:
        """The answer. `latency_s` leaves out the wait for a free place, and counts every retry.

        ContextError when the prompt and the answer asked for exceed the model's window, ModelError for other
        refusals and when all tries failed.
        """
        body = wire.request_body(request, self.model)
        async with self._places:
            started = time.monotonic()
            for failures in range(self._max_retries + 1):
                try:
                    answer = await self._post(body)
                    return wire.completion(
                        answer,
                        model=self.model,
                        sampling=request.sampling,
                        latency_s=time.monotonic() - started,
                    )
                except wire.Malformed as failure:
                    what, asked_s = str(failure), None
                except _Transient as failure:
                    what, asked_s = str(failure), failure.wait_s
                if failures < self._max_retries:
                    await asyncio.sleep(backoff_s(failures, asked_s))
        raise ModelError(
            f"model {self.model} at {self.base_url}: no answer after {self._max_retries + 1} tries in "
            f"{time.monotonic() - started:.0f} s, the last gave {what}"
        )

    async def _post(self, body: dict[str, object]) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.post(f"{self._url}/chat/completions", json=body)
        except TimeoutError:
            raise _Transient(f"nothing for {self._timeout_s:g} s") from None
        except httpx.RequestError as error:
            raise _Transient(_reason(error)) from error
        if response.is_success:
            return response.content
        if wire.may_retry(response.status_code):
            what = f"status {response.status_code}: {wire.words(response.content)}"
            raise _Transient(what, retry_after_s(response.headers.get("retry-after"), _now()))
        raise wire.refusal(response.status_code, response.content, self.base_url)

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """What the server's own tokenizer makes of `messages`, by vLLM's POST /tokenize beside /v1.

        Where that route takes no chats, the text is counted and the template's share added, rather too much. None
        where there is no such route, which is found out once, or where it fails this time.
        """
        if self._counts == "chat":
            counted = await self._tokenize(wire.tokenize_chat_body(messages, self.model), otherwise="text")
            if self._counts == "chat":
                return counted
        if self._counts == "text":
            counted = await self._tokenize(wire.tokenize_text_body(messages, self.model), otherwise=None)
            return None if counted is None else counted + wire.template_tokens(messages)
        return None

    async def _tokenize(self, body: dict[str, object], otherwise: Literal["text"] | None) -> int | None:
        """The count; `otherwise` is how to go on where the server does not understand `body`."""
        url = f"{self._url.removesuffix('/v1')}/tokenize"
        try:
            async with asyncio.timeout(COUNT_TIMEOUT_S):
                response = await self._client.post(url, json=body)
            if response.is_success:
                return wire.token_count(response.content)
        except (TimeoutError, httpx.RequestError):
            return None
        except wire.Malformed:
            self._counts = None
            return None
        if response.status_code in _NOT_UNDERSTOOD:
            self._counts = otherwise
        elif response.status_code in _NO_ROUTE:
            self._counts = None
        return None

    async def check(self) -> ModelInfo:
        """The model that will answer, and its window. ConfigError, within CHECK_TIMEOUT_S, says why there is none."""
        response = await self._list_models()
        self._refuse_status(response)
        try:
            served = wire.models(response.content)
        except wire.Malformed as error:
            raise ConfigError(
                f"{self.base_url}/models gives {error}: is it an OpenAI-compatible server? Pass --vllm-url"
            ) from None
        info = self._choose(served)
        self.model, self.window = info.model, info.max_model_len
        return info

    async def _list_models(self) -> httpx.Response:
        failure = f"nothing for {CHECK_TIMEOUT_S:g} s"
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                while True:
                    response = await self._client.get(f"{self._url}/models")
                    if not wire.may_retry(response.status_code):
                        return response
                    # A server that is just starting says so with a 503.
                    failure = f"status {response.status_code}: {wire.words(response.content)}"
                    await asyncio.sleep(BACKOFF_FIRST_S)
        except TimeoutError:
            pass
        except httpx.RequestError as error:
            failure = _reason(error)
        raise ConfigError(
            f"model server at {self.base_url} does not answer ({failure}): "
            "start one with `python -m kb_ray.serve`, or pass --vllm-url"
        )

    def _refuse_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            fault = "wrong API key for" if self._has_key else "an API key is needed at"
            raise ConfigError(f"{fault} {self.base_url} (status {status}): set --api-key or VLLM_API_KEY")
        if not response.is_success:
            raise ConfigError(
                f"{self.base_url}/models gives status {status}, {wire.words(response.content)}: "
                "pass the address that ends in /v1 as --vllm-url"
            )

    def _choose(self, served: list[ModelInfo]) -> ModelInfo:
        if not served:
            raise ConfigError(f"{self.base_url} serves no model: load one there, or pass another --vllm-url")
        names = ", ".join(info.model for info in served)
        if not self.model:
            if len(served) == 1:
                return served[0]
            raise ConfigError(f"{self.base_url} serves {names}: name one with --model")
        for info in served:
            if info.model == self.model:
                return info
        raise ConfigError(
            f"model {self.model} is not served at {self.base_url}; served there: {names}: name one with --model"
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


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


def _reason(error: httpx.RequestError) -> str:
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
