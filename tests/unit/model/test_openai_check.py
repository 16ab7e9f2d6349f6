"""What the HTTP model client says of a server before a run: which model answers, or why none does."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from model_server import ModelServer, answers, hangs, resets, says, serves

from kb_ray.errors import ConfigError
from kb_ray.model import openai_http
from kb_ray.model.completer import Request
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.records import Message


async def test_check_tells_the_window_of_the_served_model(server: ModelServer, completer: OpenAICompleter) -> None:
    server.replies = [
        serves({"id": "m", "max_model_len": 2048}),
        serves({"id": "m", "metadata": {"max_request_context_length": 4096}}),
        serves("m"),
    ]
    assert [(await completer.check()).max_model_len for _ in range(3)] == [2048, 4096, None]


async def test_check_takes_the_only_model_where_none_is_named(server: ModelServer) -> None:
    server.replies = [serves("the-only-one"), answers()]
    completer = OpenAICompleter(server.url, "")
    request = Request(messages=(Message(role="user", content="hi"),), task_id="t")
    assert (await completer.check()).model == "the-only-one"
    assert (await completer.complete(request)).model == "the-only-one"
    assert server.bodies[0]["model"] == "the-only-one"
    await completer.aclose()


@pytest.mark.parametrize(
    "adapter",
    [{"id": "m-step1", "parent": "m"}, {"id": "m:run-step1", "metadata": {"base_model_id": "m", "max_loras": 4}}],
)
async def test_adapters_listed_beside_the_only_model_do_not_hide_it(
    server: ModelServer, adapter: dict[str, Any]
) -> None:
    listed = serves({"id": "m", "max_model_len": 2048, "parent": None, "metadata": {}}, adapter)
    server.replies = [listed, listed]
    unnamed, named = OpenAICompleter(server.url, ""), OpenAICompleter(server.url, adapter["id"])
    assert (await unnamed.check()).model == "m"
    assert (await named.check()).model == adapter["id"]
    for completer in (unnamed, named):
        await completer.aclose()


@pytest.mark.parametrize(
    ("model", "reply", "message"),
    [
        ("m", serves("a", "b"), "model m is not served at .*; served there: a, b: name one with --model"),
        ("", serves("a", "b"), "serves a, b: name one with --model"),
        ("m", serves(), "serves no model: load one there"),
        ("m", says(401, {"error": "Unauthorized"}), "API key is needed .*--api-key or VLLM_API_KEY"),
        ("m", says(404, {"detail": "Not Found"}), "/v1/models gives status 404, .*is served there, or not yet"),
        ("m", says(200, "<html>"), "no JSON: is it an OpenAI-compatible server"),
        ("m", says(200, {"hello": "world"}), "without a list of models: is it an OpenAI-compatible"),
        ("m", resets, "does not answer .*--vllm-url"),
    ],
)
async def test_check_says_in_one_line_what_is_wrong(server: ModelServer, model: str, reply: Any, message: str) -> None:
    completer = OpenAICompleter(server.url, model)
    server.replies = [reply]
    with pytest.raises(ConfigError, match=message) as caught:
        await completer.check()
    assert "\n" not in str(caught.value)
    await completer.aclose()


async def test_an_address_without_its_end_is_told_from_one_where_nothing_is_served(server: ModelServer) -> None:
    completer = OpenAICompleter(server.url.removesuffix("/v1"), "m")
    server.replies = [says(404, {"detail": "Not Found"})]
    with pytest.raises(ConfigError, match="status 404, Not Found: pass the address that ends in /v1"):
        await completer.check()
    await completer.aclose()


async def test_check_tells_a_wrong_key_from_a_missing_one(server: ModelServer) -> None:
    completer = OpenAICompleter(server.url, "m", "wrong")
    server.replies = [says(403, "no")]
    with pytest.raises(ConfigError, match="wrong API key for "):
        await completer.check()
    await completer.aclose()


async def test_check_waits_for_a_server_that_is_starting(server: ModelServer, completer: OpenAICompleter) -> None:
    server.replies = [says(503, "starting"), says(503, "starting"), serves("m")]
    assert (await completer.check()).model == "m"


@pytest.mark.parametrize(
    ("reply", "message"), [(hangs, "nothing for"), (says(503, "starting"), "status 503: starting")]
)
async def test_check_ends_within_its_limit(
    server: ModelServer,
    completer: OpenAICompleter,
    monkeypatch: pytest.MonkeyPatch,
    reply: Any,
    message: str,
) -> None:
    assert openai_http.CHECK_TIMEOUT_S < 9, "the whole command refuses within 10 s"
    monkeypatch.setattr(openai_http, "CHECK_TIMEOUT_S", 0.4)
    server.replies = [reply]
    started = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        await completer.check()
    assert time.monotonic() - started < 8


async def test_check_says_at_once_that_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, never listening: connecting is refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        completer = OpenAICompleter(url, "m")
        started = time.monotonic()
        with pytest.raises(ConfigError, match=r"does not answer \(.+\): start one with .* --vllm-url"):
            await completer.check()
        assert time.monotonic() - started < 9
        await completer.aclose()


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://", "", "http://[::1/v1"])
def test_an_address_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is no http address: pass one like"):
        OpenAICompleter(url, "m")


async def test_a_password_in_the_address_is_not_said(server: ModelServer) -> None:
    server.replies = [serves("m")]
    completer = OpenAICompleter(server.url.replace("://", "://me:pa55word@"), "gpt-17")
    with pytest.raises(ConfigError, match="gpt-17 is not served at") as refused:
        await completer.check()
    assert server.url in str(refused.value)
    assert "pa55word" not in str(refused.value)
    await completer.aclose()


def test_a_key_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(ConfigError, match="no header can carry"):
        OpenAICompleter("http://localhost:8000/v1", "m", "key\n")
