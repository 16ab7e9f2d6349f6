"""The client of the HTTP service on a played clock, and what services, proxies and lost connections answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import httpx
import pytest

from kb_ray.bench import client
from kb_ray.bench.client import AsyncBenchClient
from kb_ray.bench.replies import REFUSAL
from kb_ray.bench.retrying import Patience
from tests.unit.bench.http_pieces import arguments

Answer = Callable[[httpx.Request], httpx.Response]
Play = Callable[..., "Played"]


@dataclass
class Played:
    """A clock that goes on only while somebody sleeps, and a service that says `away` until `back_s`."""

    away: Answer
    back_s: float = float("inf")
    now: float = 0.0
    asked: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(self.now)
        return httpx.Response(200, json={"status": "ok"}) if self.now >= self.back_s else self.away(request)

    async def evaluate(self, **options: Patience) -> dict[str, object]:
        """What a client with these options has of it in the end."""
        async with AsyncBenchClient("http://s", transport=httpx.MockTransport(self.answer), **options) as client:
            return await client.evaluate(**arguments())


def playing(patch: pytest.MonkeyPatch) -> Play:
    """(away, back_s) to a service whose clock is from now on the client's."""

    def play(away: Answer, back_s: float = float("inf")) -> Played:
        one = Played(away, back_s)
        patch.setattr(asyncio, "sleep", one.sleep)
        patch.setattr(client, "time", SimpleNamespace(monotonic=lambda: one.now))
        return one

    return play


def cut(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("All connection attempts failed", request=request)


def fails(error: type[httpx.TransportError]) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error("", request=request)

    return answer


def says(code: int, retry_after: str | None = None) -> Answer:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return lambda _: httpx.Response(code, headers=headers, text="a page")


def words(code: int, error: str, *, marked: bool = True) -> Answer:
    """As the service says it; or, not marked, a gateway in JSON of the same form, or a service of before the mark."""
    headers = {REFUSAL: "yes"} if marked else {}
    return lambda _: httpx.Response(code, headers=headers, json={"error": error})
