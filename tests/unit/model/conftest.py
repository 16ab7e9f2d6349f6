"""The misbehaving server and a client of it, with waits of milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from model_server import ModelServer, running

from kb_ray.model import openai_http, posting
from kb_ray.model.openai_http import OpenAICompleter


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    monkeypatch.setattr(posting, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(openai_http, "BUSY_WAIT_S", 0.01)
    async with running(ModelServer()) as server:
        yield server


@pytest.fixture
async def completer(server: ModelServer) -> AsyncIterator[OpenAICompleter]:
    completer = OpenAICompleter(server.url, "m", timeout_s=5, max_retries=3, max_concurrent=4)
    yield completer
    await completer.aclose()
