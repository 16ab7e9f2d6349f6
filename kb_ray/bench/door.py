"""What every HTTP request passes before anything of it is read: the token, and the size of its body.

An ASGI middleware. Says whose request it is in the scope; refusals are JSON with one line. Does not know what is
asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse

from kb_ray.bench.access import Access
from kb_ray.bench.replies import REFUSAL

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/healthz", "/openapi.json")
"""Paths that need no token: whether it is up, and what it understands."""
OWNER = "kb_owner"
"""Key of the scope that holds whose request it is."""
_LENGTH_DIGITS = 18
"""Of a body's length, at most."""


class Door:
    """Lets requests in to `app`. `answered` is told (path, status code) of each answer."""

    def __init__(self, app: App, access: Access, body_bytes: int, answered: Callable[[str, int], None]) -> None:
        self._app, self._access, self._body_bytes, self._answered = app, access, body_bytes, answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Serve keeps the application's prefix in the path, and says in root_path what it is.
        path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answered(path, int(message["status"]))
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(path, scope, headers)
        if refused is not None:
            await refused(scope, receive, counted)
            return
        await self._app(scope, self._bounded(receive), counted)

    def _refused(self, path: str, scope: Scope, headers: dict[str, str]) -> JSONResponse | None:
        peer = scope.get("client")
        owner = self._access.owner(headers.get("authorization"), peer[0] if peer else None)
        if owner is None and path not in OPEN:
            return _unauthorized(self._access.guarded)
        scope[OWNER] = owner
        length = headers.get("content-length", "0")
        # Numbers of thousands of digits are more than Python reads.
        if not length.isdecimal() or len(length) > _LENGTH_DIGITS or int(length) > self._body_bytes:
            return refusal(413, self._too_large(length[:_LENGTH_DIGITS]), {"Connection": "close"})
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """A body may come without its length, or be longer than it said."""
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._body_bytes:
                raise HTTPException(413, self._too_large(f"more than {self._body_bytes}"))
            return message

        return bounded

    def _too_large(self, length: str) -> str:
        return f"the body has {length} bytes, {self._body_bytes} are allowed: send several requests"


def _unauthorized(guarded: bool) -> JSONResponse:
    error = (
        "no such token: send `Authorization: Bearer TOKEN`"
        if guarded
        else "requests from other machines need a token, and this service has none: set KB_BENCH_TOKEN where it runs"
    )
    return refusal(401, error, {"WWW-Authenticate": "Bearer"})


def refusal(code: int, error: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """What every refusal looks like. It is marked as ours: a gateway's may be JSON of the same form."""
    # Names of fields are the caller's too, and may hold what no encoding has.
    line = " ".join(error.split()).encode("utf-8", "backslashreplace").decode()
    return JSONResponse({"error": line}, code, {REFUSAL: "yes", **(headers or {})})
