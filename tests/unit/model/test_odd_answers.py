"""Answers that a server should never give: none of them ends a run, or makes its store one that nobody can read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from model_server import ModelServer, answers, says, serves

from kb_ray.errors import ModelError
from kb_ray.model import posting
from kb_ray.model.completer import Request
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.records import Message, Sampling, Usage

HALF = "\ud83d"
DEEP = '{"choices":' * 100_000


def asked(*contents: str) -> Request:
    messages = tuple(
        Message(role="assistant" if n % 2 else "user", content=content) for n, content in enumerate(contents)
    )
    return Request(messages=messages, sampling=Sampling(max_tokens=64), task_id="t")


async def test_half_a_character_is_one_that_can_be_sent_and_written(
    server: ModelServer, completer: OpenAICompleter
) -> None:
    server.replies = [answers(f"a{HALF}b", f"stop{HALF}", reasoning=f"c{HALF}")]
    got = await completer.complete(asked("write a kernel"))
    assert (got.text, got.reasoning, got.finish_reason) == ("a\ufffdb", "c\ufffd", "stop\ufffd")
    assert (await completer.complete(asked("write a kernel", f"a{HALF}b", f"wrong: {HALF}"))).text == "a\ufffdb"
    assert [message["content"] for message in server.bodies[1]["messages"][1:]] == ["a\ufffdb", "wrong: \ufffd"]
    assert await completer.count_tokens(asked(f"{HALF}").messages) is None, "it could be asked for"


async def test_a_whole_pair_stays_what_it_is(server: ModelServer, completer: OpenAICompleter) -> None:
    server.replies = [says(200, json.dumps({"choices": [{"message": {"content": "\U0001f642"}}]}, ensure_ascii=True))]
    assert (await completer.complete(asked("x"))).text == "\U0001f642"


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_that_nests_without_end_is_tried_again(
    server: ModelServer, completer: OpenAICompleter, status: int
) -> None:
    server.replies = [says(status, DEEP), answers("at last")]
    assert (await completer.complete(asked("x"))).text == "at last"


async def test_a_refusal_that_nests_without_end_is_a_refusal(server: ModelServer, completer: OpenAICompleter) -> None:
    server.replies = [says(400, DEEP)]
    with pytest.raises(ModelError, match=r"refuses the request \(400\)"):
        await completer.complete(asked("x"))


@pytest.mark.parametrize("count", [-1, 2**64 - 1, 2**31, 10**400, True, "7", 1.5, None])
async def test_what_is_no_count_of_tokens_counts_as_none(
    server: ModelServer, completer: OpenAICompleter, count: Any
) -> None:
    choice = {"message": {"content": "a"}, "finish_reason": "stop"}
    server.replies = [says(200, {"choices": [choice], "usage": {"prompt_tokens": count, "completion_tokens": 5}})]
    assert (await completer.complete(asked("x"))).usage == Usage(prompt_tokens=0, completion_tokens=5)


async def test_an_answer_without_end_is_read_up_to_a_bound_and_tried_again(
    server: ModelServer, completer: OpenAICompleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "LONGEST_ANSWER", 1 << 20)
    server.replies = [answers("x" * (2 << 20)), answers("at last")]
    assert (await completer.complete(asked("x"))).text == "at last"
    server.replies = [answers("x" * (2 << 20))]
    with pytest.raises(ModelError, match=r"the last gave more than 1 MiB$"):
        await completer.complete(asked("x"))


@pytest.mark.parametrize(
    ("listed", "refused"),
    [(serves("other"), True), (serves("m", "other"), False), (says(404, "no"), False), (says(200, "no list"), False)],
    ids=["another", "still there", "no route", "no list"],
)
async def test_a_model_that_was_replaced_before_its_first_answer_gives_none_under_its_name(
    server: ModelServer, completer: OpenAICompleter, listed: Any, refused: bool
) -> None:
    server.replies = [answers("no", model="other"), listed, answers("again", model="other"), listed]
    if not refused:
        assert (await completer.complete(asked("x"))).text == "no"
        return
    for _ in range(2):
        with pytest.raises(ModelError, match="the answer is of other, and other is served there now; serve the model"):
            await completer.complete(asked("x"))
