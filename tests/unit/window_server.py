"""A real HTTP server on loopback with a window, which refuses what does not fit as vLLM does, and counts tokens.

A token is a word here. Knows nothing of the client under test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Said = list[dict[str, str]]


class WindowServer:
    """Gives the same answer to everything that fits `window`."""

    def __init__(self, window: int, answer: str, *, tells_window: bool = True, counts: bool = True) -> None:
        self.window, self.answer = window, answer
        self.tells_window, self.counts = tells_window, counts
        self.url = ""
        self.answered: list[Said] = []
        self.refused: list[Said] = []
        self.counted: list[Said] = []

    @staticmethod
    def tokens(messages: Said) -> int:
        return sum(len(message["content"].split()) for message in messages)

    async def models(self, _request: web.Request) -> web.Response:
        card: dict[str, Any] = {"id": "m"}
        if self.tells_window:
            card["max_model_len"] = self.window
        return web.json_response({"object": "list", "data": [card]})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.counted.append(body["messages"])
        if not self.counts:
            return web.json_response({"detail": "Not Found"}, status=404)
        count = self.tokens(body["messages"])
        return web.json_response({"count": count, "max_model_len": self.window, "tokens": [0] * count})

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = self.tokens(body["messages"])
        if prompt + body["max_tokens"] > self.window:
            self.refused.append(body["messages"])
            said = f"This model's maximum context length is {self.window} tokens. However, you requested more."
            return web.json_response({"error": {"message": said, "code": 400}}, status=400)
        self.answered.append(body["messages"])
        choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": self.answer}}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": prompt, "completion_tokens": 9}})


@asynccontextmanager
async def serving(server: WindowServer) -> AsyncIterator[WindowServer]:
    """`server` listening on a free port; its `url` ends in /v1, and /tokenize is beside it as in vLLM."""
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_post("/tokenize", server.tokenize)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
