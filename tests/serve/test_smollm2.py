"""A real model over the real path: vLLM on a CPU, ray.serve.llm, HTTP, the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kb_ray.errors import ConfigError, ContextError, ModelError
from kb_ray.model.completer import Request
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.records import Message, Sampling

MODEL = "smollm2-135m-instruct"


@pytest.fixture
async def completer(smollm2_url: str) -> AsyncIterator[OpenAICompleter]:
    completer = OpenAICompleter(smollm2_url, MODEL, timeout_s=120, max_retries=1)
    yield completer
    await completer.aclose()


def _request(content: str, sampling: Sampling) -> Request:
    return Request(messages=(Message(role="user", content=content),), sampling=sampling, task_id="test/hello")


async def test_the_model_answers_and_stops_by_itself(completer: OpenAICompleter) -> None:
    got = await completer.complete(_request("Say hello.", Sampling(temperature=0.0, max_tokens=80)))
    assert "hello" in got.text.lower()
    assert got.finish_reason == "stop"
    assert got.usage.prompt_tokens > 5
    assert 1 < got.usage.completion_tokens < 80
    assert got.model == MODEL


async def test_an_answer_that_meets_the_token_limit_is_cut_and_says_so(completer: OpenAICompleter) -> None:
    got = await completer.complete(_request("Tell a long story.", Sampling(temperature=0.0, max_tokens=8)))
    assert (got.finish_reason, got.usage.completion_tokens) == ("length", 8)


async def test_the_same_seed_gives_the_same_answer(completer: OpenAICompleter) -> None:
    def draw(seed: int) -> Request:
        return _request("Name an animal.", Sampling(temperature=1.5, max_tokens=8, seed=seed))

    first, again, *others = await asyncio.gather(*(completer.complete(draw(n)) for n in (5, 5, 6, 7)))
    assert again.text == first.text
    assert any(other.text != first.text for other in others)


async def test_a_prompt_beyond_the_window_is_a_context_error(completer: OpenAICompleter) -> None:
    with pytest.raises(ContextError, match="4096"):
        await completer.complete(_request("x " * 6000, Sampling(max_tokens=16)))


async def test_another_refusal_carries_the_servers_words_only(completer: OpenAICompleter) -> None:
    with pytest.raises(ModelError, match=r"\(400\): temperature must be non-negative") as caught:
        await completer.complete(_request("hi", Sampling(temperature=-3.0, max_tokens=8)))
    assert "Request ID" not in str(caught.value)


async def test_check_finds_the_model_and_its_window(smollm2_url: str, completer: OpenAICompleter) -> None:
    named = await completer.check()
    unnamed = OpenAICompleter(smollm2_url, "")
    assert named == await unnamed.check()
    assert (named.model, named.max_model_len) == (MODEL, 4096)
    await unnamed.aclose()


async def test_check_lists_what_is_served_where_another_model_is_asked_for(smollm2_url: str) -> None:
    wrong = OpenAICompleter(smollm2_url, "gpt-17")
    with pytest.raises(ConfigError, match=f"model gpt-17 is not served .* served there: {MODEL}"):
        await wrong.check()
    await wrong.aclose()
