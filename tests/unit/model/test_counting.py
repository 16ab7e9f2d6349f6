"""Counting a prompt's tokens by the server: the route beside /v1, and servers that have none."""

from __future__ import annotations

from typing import Any

import pytest
from model_server import ModelServer, answers, hangs, resets, says, serves

from kb_ray.model import openai_http
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.records import Message

SAID = (
    Message(role="user", content="write a kernel"),
    Message(role="assistant", content="one", reasoning="secret thoughts"),
)


async def test_the_server_counts_what_would_be_sent_with_the_answers_mark(
    server: ModelServer, completer: OpenAICompleter
) -> None:
    server.replies = [says(200, {"count": 23, "max_model_len": 4096, "tokens": [1] * 23})]
    assert await completer.count_tokens(SAID) == 23
    assert server.paths == ["/tokenize"]
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "write a kernel"}, {"role": "assistant", "content": "one"}],
            "add_generation_prompt": True,
        }
    ]


@pytest.mark.parametrize("status", [400, 422])
async def test_a_route_for_plain_text_only_counts_the_text_and_the_templates_share_is_added(
    server: ModelServer, completer: OpenAICompleter, status: int
) -> None:
    server.replies = [
        says(status, {"detail": "Field required: prompt"}),
        says(200, {"count": 5}),
        says(200, {"count": 7}),
    ]
    assert await completer.count_tokens(SAID) == 5 + 2 * 16 + 64
    assert await completer.count_tokens(SAID) == 7 + 2 * 16 + 64
    assert server.bodies[1:] == [{"model": "m", "prompt": "write a kernel\none"}] * 2
    server.replies = [says(status, {"detail": "neither"})]
    assert await completer.count_tokens(SAID) is None
    assert await completer.count_tokens(SAID) is None
    assert server.requests == 4


@pytest.mark.parametrize(
    "reply",
    [
        says(404, {"detail": "Not Found"}),
        says(405, "no"),
        says(401, "key"),
        says(200, {"tokens": []}),
        says(200, {"count": True}),
        says(200, {"count": 0}),
        says(200, "<html>"),
        says(200, [1]),
    ],
    ids=["404", "405", "401", "other-route", "bool", "zero", "not-json", "not-an-object"],
)
async def test_a_server_without_such_a_route_is_asked_once(
    server: ModelServer, completer: OpenAICompleter, reply: Any
) -> None:
    server.replies = [reply, says(200, {"count": 23})]
    assert await completer.count_tokens(SAID) is None
    assert await completer.count_tokens(SAID) is None
    assert server.requests == 1


@pytest.mark.parametrize("fault", [says(500, "oops"), says(503, "later"), resets, hangs])
async def test_a_fault_costs_one_count_and_not_the_next(
    server: ModelServer, completer: OpenAICompleter, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_http, "COUNT_TIMEOUT_S", 0.3)
    server.replies = [fault, says(200, {"count": 23})]
    assert await completer.count_tokens(SAID) is None
    assert await completer.count_tokens(SAID) == 23


async def test_the_window_is_known_after_the_check(server: ModelServer, completer: OpenAICompleter) -> None:
    server.replies = [serves({"id": "m", "max_model_len": 2048}), answers()]
    assert completer.window is None
    await completer.check()
    assert completer.window == 2048
