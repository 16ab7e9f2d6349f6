"""What comes back from an actor is taken only if it answers this request and is about this candidate."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
import ray

from kb_ray.bench.actor import Reply
from kb_ray.bench.protocol import BenchRequest, judged
from kb_ray.bench.worker import Worker
from kb_ray.records import Stage, Status, Verdict
from tests.fixtures_bench import ADD_RELU

REQUEST = BenchRequest(request_id="7", task=ADD_RELU, kernel_code="mine")
OTHER = ADD_RELU.model_copy(update={"reference_code": "another program"})


def answering(reply: Reply) -> Worker:
    """A worker whose actor says this, whatever it is asked."""

    async def evaluate(request_json: str) -> str:
        return reply.model_dump_json()

    worker = object.__new__(Worker)
    worker.name, worker.quarantine = "worker-0", ""
    worker._actor = SimpleNamespace(evaluate=SimpleNamespace(remote=evaluate))
    return worker


def about(what: str | None) -> Verdict:
    return Verdict.of(Status.OK, Stage.FULL, judged=what)


@pytest.mark.parametrize("what", [judged(ADD_RELU, "mine"), None])
async def test_a_verdict_on_this_candidate_is_taken(what: str | None) -> None:
    reply = await answering(Reply(request_id="7", verdict=about(what))).ask(REQUEST, 5.0)
    assert (reply.verdict, reply.infra) == (about(what), None)


@pytest.mark.parametrize("what", [judged(ADD_RELU, "another's"), judged(OTHER, "mine")])
async def test_one_on_another_candidate_or_program_is_a_failure_of_ours(what: str) -> None:
    reply = await answering(Reply(request_id="7", verdict=about(what))).ask(REQUEST, 5.0)
    assert (reply.request_id, reply.verdict) == ("7", None)
    assert reply.infra == "worker-0 answered with the verdict on another candidate"


async def test_an_answer_to_another_request_is_a_failure_of_ours() -> None:
    reply = await answering(Reply(request_id="8", verdict=about(judged(ADD_RELU, "mine")))).ask(REQUEST, 5.0)
    assert (reply.verdict, reply.infra) == (None, "worker-0 answered request 8 in place of this one")


async def test_where_ray_does_not_answer_the_run_can_end_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    def wait(*_: object, **__: object) -> None:
        gone.wait(5.0)
        raise ValueError

    monkeypatch.setattr(ray, "kill", lambda *_, **__: None)
    monkeypatch.setattr(ray, "get_actor", wait)
    ending = asyncio.create_task(answering(Reply(request_id="7"))._kill())
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert not ending.done(), "it waits, and nothing else has to"
    gone.set()
    await asyncio.wait_for(ending, 5.0)
