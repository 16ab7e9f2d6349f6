"""A server that gives nothing but failures is told of, once a minute and not at once, and when it answers again."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from model_server import ModelServer, answers, says

from kb_ray.model import posting
from kb_ray.model.completer import Request
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.records import Message, Sampling


class Played:
    """A server's silence at moments that a test names, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(posting, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.silence = posting._Silence("http://model/v1")

    def fails(self, *moments: float) -> None:
        for self.now in moments:
            self.silence.failed("status 503: x")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_what_lasts_is_told_once_a_minute_and_its_end_too(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    played.fails(0, 10, 29, 31, 45, 80, 92)
    played.silence.answered()
    played.silence.answered()
    first, second, end = caplog.messages
    assert first == (
        "no answer from http://model/v1 for 31 s: 4 tries failed, the last gave status 503: x; it goes on trying"
    )
    assert second.startswith("no answer from http://model/v1 for 92 s: 7 tries")
    assert end == "http://model/v1 answers again"


def test_failures_between_answers_are_not_told(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    for moment in range(0, 600, 20):
        played.fails(moment, moment + 10)
        played.silence.answered()
    assert caplog.messages == []


async def test_requests_that_are_tried_again_count(
    server: ModelServer, completer: OpenAICompleter, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(posting, "TELL_AFTER_S", 0.0)
    monkeypatch.setattr(posting, "TELL_EVERY_S", 1e9)
    server.replies = [says(503, "deploying"), says(200, "no JSON"), answers()]
    caplog.set_level(logging.WARNING, "kb_ray.model")
    asked = Request(task_id="t", turn=0, sample=0, messages=(Message(role="user", content="x"),), sampling=Sampling())
    await completer.complete(asked)
    told = [line.partition(":")[0] for line in caplog.messages]
    assert len(told) == 2
    assert told[0].startswith("no answer from http")
    assert caplog.messages[1].endswith("answers again")
