"""What a model or a data set got wrong costs nobody else a verdict: endless answers, half characters, bad tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kb_ray.bench.api import answer
from kb_ray.bench.bodies import Limits
from kb_ray.bench.client import BenchClient, to_verdict
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.service import Service
from kb_ray.bench.static import MAX_CHARACTERS
from kb_ray.bench.unread import unread
from kb_ray.errors import ConfigError, ReferenceFault
from kb_ray.records import Task
from kb_ray.score.reward import RewardRule, reward
from tests.unit.bench.http_pieces import REFERENCE, StaticVerifier, arguments, forbidden, serving

READ = 10_000
"""Characters of a program that this service reads."""
BAD_TASKS: dict[str, dict[str, Any]] = {
    "no entry point": {"reference_torch_code": "x = 1"},
    "no Python": {"reference_torch_code": "def"},
    "no text": {"reference_torch_code": 5},
    "too long": {"reference_torch_code": "x" * (READ + 1)},
    "shapes of no dtype": {"input_shapes": {"x": {"shape": [8], "dtype": "float31"}}},
    "shapes that are no mapping": {"input_shapes": "x: 8"},
}


@pytest.fixture
def verifier() -> StaticVerifier:
    return StaticVerifier()


@pytest.fixture
def url(verifier: StaticVerifier) -> Iterator[str]:
    with serving(Service(verifier, "cpu", limits=Limits(code_chars=READ, body_bytes=1 << 20))) as url:
        yield url


@pytest.mark.parametrize(
    ("code", "status"), [("x" * (MAX_CHARACTERS + 1), "forbidden"), ("x = '\ud800'", "syntax_error")]
)
def test_the_verdict_is_the_one_that_the_verifier_gives(code: str, status: str) -> None:
    task = Task(task_id="t", source="api", name="t", reference_code=REFERENCE, style="function", entry_point="x")
    wanted = Evaluator("cpu").evaluate(BenchRequest(request_id="r", task=task, kernel_code=code))
    got = unread(code, device="cpu")
    assert got is not None
    # Beside its words, what it says of this machine and of the request.
    own = {"error", "env", "judged", "seconds", "tests_total"}
    assert got.model_dump(exclude=own) == wanted.model_dump(exclude=own)
    assert (got.status.value, got.env.device) == (status, wanted.env.device)
    assert got.error is not None
    assert wanted.error is not None
    assert got.error.category == wanted.error.category
    assert unread("x" * MAX_CHARACTERS) is None


@pytest.mark.parametrize("length", [READ + 1, MAX_CHARACTERS + 1, 2 << 20])
def test_an_endless_answer_is_a_verdict_and_no_reason_to_refuse_others(
    url: str, verifier: StaticVerifier, length: int
) -> None:
    endless = arguments("x" * length, request_id="mine")
    with BenchClient(url) as client:
        one = client.evaluate(**endless)
        streamed = [got for _, got in client.stream([endless, arguments(forbidden(2))])]
        many = client.batch([endless, arguments(forbidden(3))])
    for got in (one, streamed[0], many[0]):
        assert (got["status"], got["request_id"], got["correctness"]) == ("forbidden", "mine", False)
        assert f"{length} characters" in got["error"]
        assert reward(to_verdict(got), RewardRule(allow_untimed=True)) == 0.0
    assert [got["error_detail"]["line"] for got in (streamed[1], many[1])] == [2, 3]
    assert all(asked.kernel_code in ("", forbidden(2), forbidden(3)) for asked in verifier.asked)


def test_half_a_character_is_a_verdict(url: str) -> None:
    with BenchClient(url) as client:
        many = client.batch([arguments("x = '\ud800'"), arguments(forbidden(3))])
    assert [got["status"] for got in many] == ["syntax_error", "forbidden"]


def test_without_our_client_too(url: str) -> None:
    with httpx.Client(base_url=url) as http:
        endless = arguments("x" * (READ + 1))
        one = http.post("/evaluate", json=endless)
        many = http.post("/evaluate/batch", json={"requests": [endless, arguments()]})
        told = http.get("/metrics").text
    assert one.status_code == 200
    assert one.json()["env"]["device"] == "cpu"
    assert one.json()["error"] == f"NOT ALLOWED: the file has {READ + 1} characters, more than the {READ} that are read"
    assert [got["status"] for got in many.json()] == ["forbidden", "forbidden"]
    assert 'kb_ray_bench_http_verdicts_total{status="forbidden"} 3.0' in told


@pytest.mark.parametrize("task", BAD_TASKS.values(), ids=BAD_TASKS)
def test_a_task_that_cannot_be_used_is_that_tasks_fault(url: str, task: dict[str, Any]) -> None:
    with BenchClient(url) as client:
        got = [got for _, got in client.stream([arguments(**task), arguments(forbidden(2))])]
        with pytest.raises(ReferenceFault, match=next(iter(task))):
            client.evaluate(**arguments(**task))
    assert [one["status"] for one in got] == ["infra_error", "forbidden"]
    assert got[0]["error"].startswith("REFERENCE ERROR: ")


@pytest.mark.parametrize("task", [BAD_TASKS[name] for name in ("no Python", "too long", "shapes of no dtype")])
def test_such_a_task_takes_no_verdict_from_the_others_of_its_batch(url: str, task: dict[str, Any]) -> None:
    with BenchClient(url) as client:
        got = client.batch([arguments(forbidden(1)), arguments(**task, request_id="b"), arguments(forbidden(3))])
        alone = client.batch([arguments(**task)])
    assert [one["status"] for one in got] == ["forbidden", "infra_error", "forbidden"]
    assert [one["error_detail"]["line"] for one in got] == [1, None, 3]
    assert got[1]["request_id"] == "b"
    assert got[1]["error"].startswith("REFERENCE ERROR: ")
    assert next(iter(task)) in got[1]["error"]
    assert alone[0]["error"] == got[1]["error"]


def test_what_is_wrong_with_all_requests_of_a_caller_stays_an_error(url: str) -> None:
    endless, bad = arguments("x" * (MAX_CHARACTERS + 1)), arguments(n_trials=0)
    with BenchClient(url) as client:
        with pytest.raises(ConfigError, match=r"requests\.1: n_trials"):
            client.batch([endless, bad])
        with pytest.raises(ConfigError, match=r"request 1: .*n_trials"):
            list(client.stream([endless, bad]))


def test_an_answer_made_here_has_every_field_of_one_from_there(url: str) -> None:
    with BenchClient(url) as client:
        here, there = client.evaluate(**arguments("x" * (MAX_CHARACTERS + 1))), client.evaluate(**arguments())
    assert here.keys() == there.keys()
    assert answer(to_verdict(here)) == here
