"""Tokens asked of a server: what is sent, what is read, and that nothing is taken for what it is not."""

from __future__ import annotations

from typing import Any

import pytest

from kb_ray.errors import ContextError, ModelError
from kb_ray.model.tokens_http import TokenAnswer, TokenClient
from kb_ray.records import Sampling
from tests.unit.model.model_server import ModelServer, resets, says

MODEL = "base:run-step000001"
GOOD = {
    "model": MODEL,
    "choices": [{"token_ids": [5, 6, 2], "logprobs": {"token_logprobs": [-0.5, -1.0, 0.0]}, "finish_reason": "stop"}],
}


def with_choice(**changes: Any) -> dict[str, Any]:
    return GOOD | {"choices": [GOOD["choices"][0] | changes]}  # type: ignore[index]


async def draw(server: ModelServer, **sampling: Any) -> TokenAnswer:
    client = TokenClient(server.url, max_concurrent=2)
    try:
        return await client.draw(MODEL, (1, 4), Sampling(max_tokens=9, **sampling), 7, {3, 2})
    finally:
        await client.aclose()


async def test_tokens_are_sent_and_nothing_shapes_the_distribution(server: ModelServer) -> None:
    server.replies = [says(200, GOOD)]
    assert await draw(server, temperature=0.7) == TokenAnswer((5, 6, 2), (-0.5, -1.0, 0.0), truncated=False)
    body = server.bodies[0]
    assert server.paths == ["/v1/completions"]
    assert (body["model"], body["prompt"], body["seed"], body["stop_token_ids"]) == (MODEL, [1, 4], 7, [2, 3])
    assert (body["max_tokens"], body["temperature"], body["return_token_ids"]) == (9, 0.7, True)
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)


async def test_an_answer_that_the_limit_ended_says_so(server: ModelServer) -> None:
    server.replies = [says(200, with_choice(finish_reason="length"))]
    assert (await draw(server)).truncated


@pytest.mark.parametrize(
    "failing", [says(503, {"error": "loading"}), resets, says(200, "oops"), says(200, {"model": MODEL, "choices": []})]
)
async def test_what_may_pass_is_tried_again(server: ModelServer, failing: Any) -> None:
    server.replies = [failing, says(200, GOOD)]
    assert (await draw(server)).tokens == (5, 6, 2)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (GOOD | {"model": "base"}, "asked for base:run-step000001, but base answered"),
        (with_choice(token_ids=None), "tells no tokens"),
        (with_choice(logprobs=None), "tells no tokens"),
        (with_choice(logprobs={"token_logprobs": [-0.5]}), "1 probabilities for 3 tokens"),
    ],
)
async def test_what_cannot_be_learned_from_is_an_error_at_once(
    server: ModelServer, answer: dict[str, Any], message: str
) -> None:
    server.replies = [says(200, answer)]
    with pytest.raises(ModelError, match=message):
        await draw(server)
    assert len(server.bodies) == 1


async def test_a_prompt_beyond_the_window_is_a_context_error(server: ModelServer) -> None:
    server.replies = [says(400, {"error": {"message": "maximum context length is 4096 tokens"}})]
    with pytest.raises(ContextError, match="4096"):
        await draw(server)
