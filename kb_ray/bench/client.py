"""Client of the HTTP service: the Python API's arguments in, its mappings out, from wherever the service is reached.

    with BenchClient("http://HOST:8100", token=...) as client:
        client.evaluate(kernel_code=..., problem_code=...)["correctness"]

Waits while the queue is full and while the service is away, and what is cancelled is killed over there.
`AsyncBenchClient` is the same for asyncio. Needs httpx only. Knows no Ray and no torch.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import httpx

from kb_ray.bench import replies, sending
from kb_ray.bench.api import answer, infra_verdict
from kb_ray.bench.fair import Priority
from kb_ray.bench.retrying import BROKEN, Attempts, Patience
from kb_ray.env_vars import BENCH_TOKEN
from kb_ray.errors import ConfigError, InfraError, ReferenceFault
from kb_ray.records import Verdict

Arguments = Mapping[str, Any]
Result = dict[str, Any]
Numbered = tuple[int, Result]
T = TypeVar("T")

ANSWER_S = 3600.0
"""Seconds for one answer at most, the wait in the queue included."""
_HEALTH = httpx.Timeout(10.0, pool=None)
"""For whether it is there. Own connections that are busy say nothing of that."""


class AsyncBenchClient:
    """One connection pool to a service. For one event loop; use it as `async with`.

    `token`: None takes KB_BENCH_TOKEN from the environment, where it is set. `client`: a name for this use; uses share
    the service evenly. `priority`: among the requests of the same token. `at_once`: requests under way; others wait.
    `transport`: httpx's, for certificates and connections of one's own. Raises ConfigError for what the service
    refuses (its own words), InfraError where it gives no answer within `patience`: `Patience(broken_s=600)` rides out
    an absence of ten minutes. ReferenceFault for a reference that cannot be used or run there.
    """

    def __init__(
        self, url: str, token: str | None = None, *, client: str = "", priority: Priority = "normal",
        at_once: int = 64, answer_s: float = ANSWER_S, patience: Patience | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        if not (at_once >= 1 and answer_s > 0):
            raise ConfigError(f"at_once is {at_once} and answer_s {answer_s}: give 1 or more, and above 0")
        token = sending.header_token(token or os.environ.get(BENCH_TOKEN) or "")
        self._origin = {"client": client, "priority": priority}
        self._at_once, self._patience = at_once, patience or Patience()
        self._met = False
        self._http = httpx.AsyncClient(
            base_url=sending.service_url(url),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(answer_s, connect=10.0, pool=None),
            transport=transport,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=at_once),
        )
        # Its requests wait for each other here, and not for a connection: that time is not the service's.
        self._room = asyncio.Semaphore(at_once)

    async def evaluate(self, **arguments: Any) -> Result:
        """The mapping of one candidate's verdict; arguments of `benchmark_kernelbench` or `benchmark_triton_kernel`.

        Cancelled, it has the candidate killed. One that nobody reads (`unread`) has its verdict without being sent.
        """
        if (verdict := sending.unread_verdict(arguments)) is not None:
            return _answer(verdict, arguments)
        sent = sending.sendable(arguments)
        try:
            result: Result = await self._post("/evaluate", {**self._origin, **sent}, dict)
        except sending.TooLarge as error:
            if sending.made_long_by_its_reference(sent):
                raise ReferenceFault(str(error)) from None
            raise
        return replies.restored(result)

    async def batch(self, requests: Sequence[Arguments]) -> list[Result]:
        """Many in one request, answers in their order. One that our side failed at, or whose reference cannot be used,
        has status `infra_error`."""
        many = [sending.of_many(arguments) for arguments in requests]
        body = {**self._origin, "requests": [sent for sent, _ in many]}
        results: list[Result] = await self._post("/evaluate/batch", body, list)
        return [
            replies.restored(result) if verdict is None else _answer(verdict, arguments)
            for result, (_, verdict), arguments in zip(results, many, requests, strict=True)
        ]

    async def stream(self, requests: Iterable[Arguments], *, ordered: bool = True) -> AsyncGenerator[Numbered]:
        """(number, mapping) of any number of requests, `at_once` under way: in their order, or as they are done.

        Each is a request by itself, waited for and tried again by itself; one that gets no verdict has status
        `infra_error`. Requests are read as they are needed. Leaving it cancels the rest (`aclosing`).
        """
        source = enumerate(requests)
        running: dict[asyncio.Task[Result], int] = {}
        try:
            while True:
                while len(running) < self._at_once and (item := next(source, None)) is not None:
                    running[asyncio.create_task(self._numbered(*item))] = item[0]
                if not running:
                    return
                first = next(iter(running))
                done, _ = await asyncio.wait([first] if ordered else running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield running.pop(task), task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def healthy(self) -> bool:
        """Whether the service is there and can give verdicts."""
        try:
            return (await self._http.get("/healthz", timeout=_HEALTH)).status_code == 200
        except httpx.TransportError:
            return False

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncBenchClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _numbered(self, number: int, arguments: Arguments) -> Result:
        try:
            return await self.evaluate(**arguments)
        except ConfigError as error:
            raise ConfigError(f"request {number}: {error}") from None
        except InfraError as error:
            return _answer(infra_verdict(str(error), reference=isinstance(error, ReferenceFault)), arguments)

    async def _post(self, path: str, body: Result, kind: type[T]) -> T:
        attempts, content = Attempts(self._patience), sending.encoded(body)
        while True:
            async with self._room:
                began = time.monotonic()
                try:
                    headers = {"Content-Type": "application/json"}
                    response = await self._http.post(path, content=content, headers=headers)
                except httpx.UnsupportedProtocol as error:
                    raise ConfigError(f"{self._http.base_url} is no URL of a service: {error}") from None
                except httpx.TransportError as error:
                    pause = _unanswered(error, attempts, time.monotonic() - began)
                    said = f"{type(error).__name__} {error}".strip()
                else:
                    if response.status_code == 200:
                        result = replies.answered(response, kind)
                        self._met = True
                        return result
                    pause = self._refused(response, attempts, time.monotonic() - began)
                    said = replies.said(response)
            if pause is None:
                raise InfraError(f"no verdict from {self._http.base_url}: {said} ({attempts.failures} failures)")
            await asyncio.sleep(pause)

    def _refused(self, response: httpx.Response, attempts: Attempts, took_s: float) -> float | None:
        """How long to wait before the next try, None: give up; raises where no other try helps."""
        code, own = response.status_code, replies.own(response)
        retry_after, jitter = response.headers.get("retry-after"), random.random()
        self._met |= own or code == 429
        if code == 429:
            return attempts.busy(retry_after, jitter)
        if own and code in BROKEN:
            return attempts.fruitless(retry_after, jitter, took_s)
        # Serve's proxy knows no path until its applications are there again. The service always knows which it has.
        restarting = code == 404 and not own and (self._met or attempts.failed)
        if code in BROKEN or restarting:
            return attempts.lost(retry_after, jitter, took_s)
        said = replies.nothing_there(response) if code == 404 else replies.said(response)
        if response.headers.get(replies.FAULT) == "reference":
            raise ReferenceFault(said)
        refusal = sending.TooLarge if code == 413 else ConfigError
        raise refusal(f"{self._http.base_url} refuses: {said}")


class BenchClient:
    """The same for code without an event loop: it has one of its own, in a thread. Thread-safe.

    A call that is interrupted (Ctrl-C) is cancelled, and so is what is left of a stream that is not read to its end.
    """

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        """Arguments of AsyncBenchClient."""
        self._client = AsyncBenchClient(url, token, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kb-bench-client", daemon=True)
        self._lock, self._closed = threading.Lock(), False
        self._thread.start()

    def evaluate(self, **arguments: Any) -> Result:
        """See AsyncBenchClient."""
        return self._result(self._client.evaluate(**arguments))

    def batch(self, requests: Sequence[Arguments]) -> list[Result]:
        """See AsyncBenchClient."""
        return self._result(self._client.batch(requests))

    def stream(self, requests: Iterable[Arguments], *, ordered: bool = True) -> Iterator[Numbered]:
        """See AsyncBenchClient. `requests` is read in another thread."""
        results = self._client.stream(requests, ordered=ordered)
        # Interrupted, it is left while the stream may still be letting go of its requests.
        one_at_a_time = asyncio.Lock()

        async def following() -> Numbered | None:
            async with one_at_a_time:
                return await anext(results, None)

        async def leave() -> None:
            async with one_at_a_time:
                await results.aclose()

        try:
            while (result := self._result(following())) is not None:
                yield result
        finally:
            # A client that is closed has left its streams already.
            with suppress(ConfigError):
                self._result(leave())

    def healthy(self) -> bool:
        """See AsyncBenchClient."""
        return self._result(self._client.healthy())

    def close(self) -> None:
        """Cancels what is under way and closes all connections. May be called twice."""
        with self._lock:
            if self._closed:
                return
            # What was handed to the loop before is ended by this; nothing comes after it, which the loop would not run.
            self._closed, ending = True, asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> BenchClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._client.aclose()

    def _result(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                work.close()
                raise ConfigError("this client is closed: make another one")
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        finally:
            running.cancel()


def to_verdict(result: Arguments) -> Verdict:
    """The Verdict that a mapping was made of."""
    fields = {name: value for name, value in result.items() if name in Verdict.model_fields}
    return Verdict.model_validate(fields | {"error": result["error_detail"]})


def _unanswered(error: httpx.TransportError, attempts: Attempts, took_s: float) -> float | None:
    """How long to wait where nothing came back. Asked again it is only evaluated again: that changes nothing."""
    jitter = random.random()
    if isinstance(error, httpx.ReadTimeout):
        return attempts.fruitless(None, jitter, took_s)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return attempts.broken(None, jitter, took_s)
    return attempts.lost(None, jitter, took_s)


def _answer(verdict: Verdict, arguments: Arguments) -> Result:
    """A verdict that was reached here, as the service would give it."""
    return answer(verdict) | {key: arguments[key] for key in ("request_id",) if key in arguments}
