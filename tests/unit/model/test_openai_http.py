"""The HTTP model client against a real server on loopback: answers, refusals, faults, limits."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from model_server import ModelServer, answers, drips, hangs, resets, says, serves

from kb_ray.errors import ContextError, ModelError
from kb_ray.model import posting
from kb_ray.model.completer import Request
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.model.posting import backoff_s, retry_after_s
from kb_ray.records import Message, Sampling, Usage

REQUEST = Request(
    messages=(
        Message(role="user", content="write a kernel"),
        Message(role="assistant", content="one", reasoning="secret thoughts"),
    ),
    sampling=Sampling(temperature=0.3, top_p=0.9, max_tokens=64, seed=11),
    task_id="builtin/1/add_relu",
)


async def test_an_answer_is_recorded_with_usage_sampling_and_latency(
    server: ModelServer, completer: OpenAICompleter
) -> None:
    server.replies = [answers("```python\npass\n```")]
    got = await completer.complete(REQUEST)
    assert got.text == "```python\npass\n```"
    assert got.finish_reason == "stop"
    assert got.usage == Usage(prompt_tokens=7, completion_tokens=3)
    assert got.sampling == REQUEST.sampling
    assert got.model == "m"
    assert 0 < got.latency_s < 5


async def test_the_request_carries_messages_and_sampling_and_no_reasoning(
    server: ModelServer, completer: OpenAICompleter
) -> None:
    await completer.complete(REQUEST)
    assert server.bodies == [
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": "write a kernel"},
                {"role": "assistant", "content": "one"},
            ],
            "temperature": 0.3,
            "top_p": 0.9,
            "max_tokens": 64,
            "seed": 11,
        }
    ]
    assert "Authorization" not in server.headers[0]


async def test_the_key_is_sent_as_a_bearer_token(server: ModelServer) -> None:
    completer = OpenAICompleter(server.url + "/", "m", "k-123")
    await completer.complete(REQUEST)
    await completer.aclose()
    assert server.headers[0]["Authorization"] == "Bearer k-123"


@pytest.mark.parametrize(
    ("content", "message", "text", "reasoning"),
    [
        ("code", {"reasoning": "because"}, "code", "because"),
        ("code", {"reasoning_content": "because"}, "code", "because"),
        ("<think>because</think>code", {"reasoning": None}, "code", "because"),
        (None, {"reasoning": "only thoughts"}, "", "only thoughts"),
        (None, {}, "", None),
    ],
)
async def test_reasoning_comes_from_its_field_else_from_think_tags(
    server: ModelServer,
    completer: OpenAICompleter,
    content: str | None,
    message: dict[str, Any],
    text: str,
    reasoning: str | None,
) -> None:
    server.replies = [answers(content, **message)]
    got = await completer.complete(REQUEST)
    assert (got.text.strip(), got.reasoning) == (text, reasoning)


async def test_an_answer_cut_off_by_length_says_so(server: ModelServer, completer: OpenAICompleter) -> None:
    server.replies = [answers("def kern", finish_reason="length")]
    assert (await completer.complete(REQUEST)).finish_reason == "length"


@pytest.mark.parametrize(
    "fault",
    [
        says(429, {"error": {"message": "slow down"}}),
        says(500, "oops"),
        says(503, {"detail": "deploying"}),
        resets,
        says(200, "<html>a proxy speaks</html>"),
        says(200, {"choices": []}),
        says(200, {"choices": [{"message": None}]}),
        says(200, [1]),
    ],
    ids=["429", "500", "503", "reset", "not-json", "no-choices", "no-message", "not-an-object"],
)
async def test_a_fault_that_passes_is_survived(server: ModelServer, completer: OpenAICompleter, fault: Any) -> None:
    server.replies = [fault, fault, answers("at last")]
    assert (await completer.complete(REQUEST)).text == "at last"
    assert server.requests == 3


async def test_a_fault_that_stays_is_a_model_error_after_the_last_retry(
    server: ModelServer, completer: OpenAICompleter
) -> None:
    server.replies = [says(200, {"choices": []})]
    with pytest.raises(ModelError, match=r"no answer after 4 tries .* an answer without choices"):
        await completer.complete(REQUEST)
    assert server.requests == 4


async def test_retry_after_is_waited_out(server: ModelServer, completer: OpenAICompleter) -> None:
    server.replies = [says(429, "busy", **{"Retry-After": "1"}), answers()]
    got = await completer.complete(REQUEST)
    assert 1.0 <= got.latency_s < 3.0


@pytest.mark.parametrize("reply", [hangs, drips], ids=["silent", "dripping"])
async def test_a_hung_connection_ends_at_the_time_limit(server: ModelServer, reply: Any) -> None:
    completer = OpenAICompleter(server.url, "m", timeout_s=0.3, max_retries=1)
    server.replies = [reply]
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"nothing for 0\.3 s"):
        await completer.complete(REQUEST)
    assert time.monotonic() - started < 20
    assert server.requests == 2
    await completer.aclose()


async def test_a_storm_of_429_loses_no_request_and_never_exceeds_the_places(server: ModelServer) -> None:
    completer = OpenAICompleter(server.url, "m", max_retries=8, max_concurrent=4)
    server.replies = [says(429, "busy")] * 30 + [answers()]
    got = await asyncio.gather(*(completer.complete(REQUEST) for _ in range(30)))
    assert [one.text for one in got] == ["hello"] * 30
    assert server.requests == 60
    assert 1 <= server.most_in_flight <= 4
    await completer.aclose()


async def test_waiting_for_a_place_is_not_latency(server: ModelServer) -> None:
    async def slowly(request: Any) -> Any:
        await asyncio.sleep(0.2)
        return await answers()(request)

    completer = OpenAICompleter(server.url, "m", max_concurrent=1)
    server.replies = [slowly]
    got = await asyncio.gather(*(completer.complete(REQUEST) for _ in range(4)))
    assert max(one.latency_s for one in got) < 0.4
    await completer.aclose()


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 16 output tokens",
        "max_tokens=5000 cannot be greater than max_model_len=max_total_tokens=4096.",
        "The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        "the request exceeds the available context size, try increasing it",
    ],
)
async def test_a_prompt_beyond_the_window_is_a_context_error(
    server: ModelServer, completer: OpenAICompleter, said: str
) -> None:
    server.replies = [says(400, {"error": {"message": said, "code": 400}})]
    with pytest.raises(ContextError, match="do not fit the model's window"):
        await completer.complete(REQUEST)
    assert server.requests == 1


async def test_another_refusal_is_not_retried_and_tells_the_servers_words_in_one_bounded_line(
    server: ModelServer, completer: OpenAICompleter
) -> None:
    server.replies = [says(400, {"error": {"message": "bad\ntemperature " + "x" * 5000}})]
    with pytest.raises(ModelError, match="bad temperature x") as caught:
        await completer.complete(REQUEST)
    assert not isinstance(caught.value, ContextError)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
    assert server.requests == 1


def test_waits_grow_stay_bounded_and_respect_the_server() -> None:
    longest = [backoff_s(n, draw=lambda _low, high: high) for n in range(12)]
    shortest = [backoff_s(n, draw=lambda low, _high: low) for n in range(12)]
    assert longest == [min(30.0, 2.0**n) for n in range(12)]
    assert shortest == [wait / 2 for wait in longest]
    assert backoff_s(0, 7.0, draw=lambda low, _high: low) == 7.0
    assert backoff_s(0, 1e9, draw=lambda low, _high: low) == posting.RETRY_AFTER_MAX_S


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("2.5", 2.5),
        ("-3", 0.0),
        ("Sat, 28 Nov 2026 10:00:30 GMT", 30.0),
        ("Sat, 28 Nov 2026 09:00:00 GMT", 0.0),
        ("soon", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, datetime(2026, 11, 28, 10, tzinfo=UTC)) == seconds


async def test_an_answer_of_another_model_than_before_is_none(server: ModelServer) -> None:
    completer = OpenAICompleter(server.url, "m", max_retries=0)
    request = Request(messages=(Message(role="user", content="hi"),), task_id="t")
    longer = answers(model="m-2026-01-02")
    server.replies = [answers(), longer, serves("m"), longer, answers(model="m")]
    assert [(await completer.complete(request)).model for _ in range(4)] == ["m"] * 4, "a longer name is the same model"
    server.replies = [answers("no", model="other")]
    with pytest.raises(ModelError, match="the answer is of other, earlier ones were of m-2026-01-02"):
        await completer.complete(request)
    await completer.aclose()
