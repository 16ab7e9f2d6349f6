"""A real HTTP server on loopback that misbehaves on request: one reply per request, in order.

Knows the OpenAI routes, and nothing of the client under test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


def says(status: int, body: Any = None, **headers: str) -> Reply:
    """A reply with this status and body (JSON, or text as it is)."""
    text = body if isinstance(body, str) else json.dumps(body)

    async def reply(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type="application/json", headers=headers)

    return reply


def answers(
    content: str | None = "hello", finish_reason: str = "stop", *, model: str | None = None, **message: Any
) -> Reply:
    """A chat completion; where it says so, of `model`."""
    choice = {"index": 0, "finish_reason": finish_reason}
    return says(
        200,
        {
            **({"model": model} if model else {}),
            "choices": [{**choice, "message": {"role": "assistant", "content": content, **message}}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        },
    )


def serves(*cards: Any) -> Reply:
    """A list of models; a name stands for a card with nothing but a name."""
    data = [{"id": card} if isinstance(card, str) else card for card in cards]
    return says(200, {"object": "list", "data": data})


async def resets(request: web.Request) -> web.StreamResponse:
    """The connection breaks before an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hangs(_request: web.Request) -> web.StreamResponse:
    """No answer for as long as a test lasts."""
    await asyncio.sleep(60)
    return web.Response()


async def drips(request: web.Request) -> web.StreamResponse:
    """An answer that starts at once and never ends, a byte now and then."""
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(600):
        await response.write(b" ")
        await asyncio.sleep(0.05)
    return response


class ModelServer:
    """Plays `replies` in order; the last one is repeated."""

    def __init__(self) -> None:
        self.url = ""
        self.replies: list[Reply] = [answers()]
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0

    @property
    def requests(self) -> int:
        return len(self.headers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        reply = self.replies[min(self.requests, len(self.replies) - 1)]
        self.headers.append(dict(request.headers))
        self.paths.append(request.path)
        if request.method == "POST":
            self.bodies.append(await request.json())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await reply(request)
        finally:
            self.in_flight -= 1


@asynccontextmanager
async def running(server: ModelServer) -> AsyncIterator[ModelServer]:
    """`server` listening on a free port; its `url` ends in /v1."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
