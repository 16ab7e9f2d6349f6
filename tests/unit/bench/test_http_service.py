"""The HTTP service without Ray: what it answers, what it refuses and in which words, and whom it lets in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kb_ray.bench.access import Access
from kb_ray.bench.api import answer, bench_request
from kb_ray.bench.bodies import Limits
from kb_ray.bench.host import Evaluator
from kb_ray.bench.service import Service, make_app
from tests.unit.bench.http_pieces import (
    BLAMES,
    BREAKS,
    FAILS,
    HANGS,
    ODD,
    REFERENCE,
    SHAPES,
    StaticVerifier,
    arguments,
    forbidden,
)  # fmt: skip

TOKEN = "a-token-of-enough-characters"
Made = Callable[..., Any]


@asynccontextmanager
async def client(
    verifier: StaticVerifier | None = None, access: Access | None = None, peer: str = "127.0.0.1", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    service = Service(verifier or StaticVerifier(), "cpu", **options)
    # An error of the service's own is answered, and then raised for the log.
    transport = httpx.ASGITransport(
        make_app(service, access or Access({})), raise_app_exceptions=False, client=(peer, 1)
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
        yield http


async def test_an_answer_is_the_mapping_of_the_python_api() -> None:
    async with client() as http:
        got = (await http.post("/evaluate", json=arguments(forbidden(3), request_id="mine", n_correctness=2))).json()
    request = bench_request(forbidden(3), REFERENCE, SHAPES, n_correctness=2, device="cpu")
    wanted = answer(Evaluator("cpu").evaluate(request))
    assert got.pop("request_id") == "mine"
    assert got.pop("seconds").keys() == wanted.pop("seconds").keys()
    assert got == json.loads(json.dumps(wanted))


async def test_settings_reach_the_verifier_and_a_callers_id_does_not() -> None:
    verifier = StaticVerifier()
    more = {
        "n_trials": 7, "timeout_s": 9.5, "torch_ops": "forbid", "generalise": "off", "measure_performance": False,
        "tf32": True,
    }  # fmt: skip
    async with client(verifier) as http:
        for _ in range(2):
            await http.post("/evaluate", json=arguments(request_id="same", kernel_name="mine", **more))
    first, second = verifier.asked
    assert more.items() <= first.settings.model_dump().items()
    assert (first.settings.device, first.task.name) == ("cpu", "mine")
    assert len({first.request_id, second.request_id, "same"}) == 3


BAD = {
    "kernel_code: is missing": {"problem_code": "x"},
    "kernel_code: is missing; kernel: no such field": {"kernel": "x", "problem_code": "x"},
    "give one of them, not none": {"kernel_code": "x"},
    "give one of them, not both": arguments(problem_code="x"),
    "kernl: no such field": arguments(kernl=1),
    "n_correctness: Input should be a valid integer": arguments(n_correctness="many"),
    "n_trials: Input should be less than or equal to 10000, got 10001": arguments(n_trials=10_001),
    "timeout_s": arguments(timeout_s=float("inf")),
    "priority: Input should be 'high', 'normal' or 'low'": arguments(priority="urgent"),
    "goes with reference_torch_code": {"kernel_code": "", "problem_code": "x", "input_shapes": SHAPES},
    "reference_torch_code: the reference is no valid Python": arguments(reference_torch_code="def"),
    "the reference of mine is no valid Python": arguments(reference_torch_code="def", kernel_name="mine"),
    "unknown dtype 'float31'": arguments(input_shapes={"x": {"shape": [1], "dtype": "float31"}}),
    "reference_torch_code: 1001 characters, 1000 are": arguments(reference_torch_code="x" * 1001),
    "request_id: String should have at most 128": arguments(request_id="x" * 129),
    "kernel_code: Value error, half a character": arguments("\ud800"),
    "Input should be a valid dictionary": [1],
}


@pytest.mark.parametrize(("said", "body"), [*BAD.items(), ("the body is no JSON: Expecting", b"{"), ("no JSON", b"")])
async def test_what_cannot_be_used_is_one_line_that_says_where(said: str, body: object) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client(limits=Limits(code_chars=1000)) as http:
        got = await http.post("/evaluate", content=content, headers={"Content-Type": "application/json"})
    assert got.status_code == 422
    error = got.json()["error"]
    assert said in error
    assert "\n" not in error
    assert len(error) < 300


async def test_a_batch_names_the_request_that_cannot_be_used() -> None:
    async with client(limits=Limits(batch=2)) as http:
        bad = await http.post("/evaluate/batch", json={"requests": [arguments(), arguments(n_trials=0)]})
        many = await http.post("/evaluate/batch", json={"requests": [arguments()] * 3})
        wrong = await http.post("/evaluate/batch", json={"requests": [arguments(), {"kernel_code": 1}]})
    assert [got.status_code for got in (bad, many, wrong)] == [422] * 3
    assert "requests.1: n_trials" in bad.json()["error"]
    assert "3 of them, 2 are allowed" in many.json()["error"]
    assert "requests.1.kernel_code: " in wrong.json()["error"]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([REFERENCE, "x=1", "\udc00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    [*arguments(), "problem_code", "n_correctness", "timeout_s", "kernel_name", "client", "x", "\ud800"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(fields, values, max_size=5))
def test_no_body_whatever_makes_the_service_fail(changes: dict[str, Any]) -> None:
    async def post() -> httpx.Response:
        async with client() as http:
            content = json.dumps(arguments() | changes)
            return await http.post("/evaluate", content=content, headers={"Content-Type": "application/json"})

    got = asyncio.run(post())
    assert got.status_code in (200, 422), got.text
    assert got.status_code == 200 or "\n" not in got.json()["error"]


@pytest.mark.parametrize("depth", [10, 100_000])
async def test_a_body_nested_without_end_is_refused(depth: int) -> None:
    async with client() as http:
        content = b'{"kernel_code": ' + b"[" * depth + b"]" * depth + b"}"
        got = await http.post("/evaluate", content=content, headers={"Content-Type": "application/json"})
    assert got.status_code in (400, 422)
    assert got.json()["error"]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit_is_refused_whether_or_not_it_says_its_length(declared: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b" " * 300

    verifier = StaticVerifier()
    async with client(verifier, limits=Limits(body_bytes=1000)) as http:
        content = b" " * 1200 if declared else chunks()
        got = await http.post("/evaluate", content=content, headers={"Content-Type": "application/json"})
    assert got.status_code == 413
    assert "1000 are allowed" in got.json()["error"]
    assert verifier.asked == []


@pytest.mark.parametrize("header", [{}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Basic {TOKEN}"}])
@pytest.mark.parametrize("path", ["/evaluate", "/evaluate/batch", "/metrics", "/nothing"])
async def test_without_the_token_nothing_is_read_and_nothing_told(path: str, header: dict[str, str]) -> None:
    async with client(access=Access({"a": TOKEN}), limits=Limits(body_bytes=10)) as http:
        got = await http.post(path, content=b"[" * 100, headers=header)
        open_ones = [(await http.get(name)).status_code for name in ("/healthz", "/openapi.json")]
    assert (got.status_code, got.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert TOKEN not in got.text
    assert open_ones == [200, 200]


async def test_a_token_opens_and_none_is_needed_from_this_machine_where_there_is_none() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with client(access=Access({"a": TOKEN}), peer="10.0.0.9") as http:
        assert (await http.post("/evaluate", json=arguments(), headers=headers)).status_code == 200
        told = (await http.get("/metrics", headers=headers)).text
    assert TOKEN not in told
    async with client() as http:
        assert (await http.post("/evaluate", json=arguments())).status_code == 200
    async with client(peer="10.0.0.9") as http:
        far = await http.post("/evaluate", json=arguments(), headers=headers)
    assert far.status_code == 401
    assert "KB_BENCH_TOKEN" in far.json()["error"]


async def test_a_full_queue_says_when_to_come_again_and_takes_requests_after() -> None:
    verifier = StaticVerifier(capacity=1, delay_s=0.2)
    async with client(verifier, queue_limit=4, ahead=0) as http:
        got = await asyncio.gather(*(http.post("/evaluate", json=arguments()) for _ in range(12)))
        later = await http.post("/evaluate", json=arguments())
    codes = [one.status_code for one in got]
    assert set(codes) == {200, 429}
    assert all(int(one.headers["Retry-After"]) >= 1 for one in got if one.status_code == 429)
    assert later.status_code == 200
    assert verifier.most == 1


async def test_our_trouble_is_503_and_never_a_verdict_and_a_references_is_neither() -> None:
    async with client() as http:
        ours = await http.post("/evaluate", json=arguments(FAILS))
        theirs = await http.post("/evaluate", json=arguments(BLAMES))
        bug = await http.post("/evaluate", json=arguments(BREAKS))
        batch = await http.post(
            "/evaluate/batch", json={"requests": [arguments(), arguments(FAILS), arguments(BLAMES)]}
        )
    assert (ours.status_code, ours.headers["Retry-After"]) == (503, "5")
    assert "the node is gone" in ours.json()["error"]
    assert "status" not in ours.json()
    assert (theirs.status_code, theirs.headers["X-KB-Ray-Fault"]) == (422, "reference")
    assert bug.status_code == 500
    assert "a secret" not in bug.text
    assert [one["status"] for one in batch.json()] == ["forbidden", "infra_error", "infra_error"]
    said = [one["error"].partition(":")[0] for one in batch.json()]
    assert said == ["NOT ALLOWED", "INFRASTRUCTURE ERROR", "REFERENCE ERROR"]


async def test_numbers_that_json_has_no_word_for_are_words() -> None:
    async with client() as http:
        got = await http.post("/evaluate", json=arguments(ODD))
    detail = json.loads(got.text, parse_constant=pytest.fail)["error_detail"]
    assert (detail["max_abs_error"], detail["max_rel_error"]) == ("NaN", "-Infinity")


async def test_one_with_few_requests_does_not_wait_behind_one_with_many() -> None:
    verifier = StaticVerifier(capacity=1, delay_s=0.01)
    async with client(verifier, ahead=0) as http:
        body = {"requests": [arguments(kernel_name="many")] * 60, "client": "a"}
        many = asyncio.create_task(http.post("/evaluate/batch", json=body))
        await asyncio.sleep(0.1)
        few = await http.post("/evaluate", json=arguments(client="b", kernel_name="few"))
        assert few.status_code == 200
        assert not many.done()
        place = [asked.task.name for asked in verifier.asked].index("few")
        await many
    assert place < 30


async def test_health_and_metrics_tell_the_state_without_names() -> None:
    verifier = StaticVerifier()
    async with client(verifier) as http:
        await http.post("/evaluate", json=arguments(request_id="zebra", client="yak"))
        await http.get("/a/path/of/my/own")
        healthy, metrics = await http.get("/healthz"), await http.get("/metrics")
        verifier.lost = "no GPU will come"
        lost = await http.get("/healthz")
    assert healthy.json() == {"status": "ok", "device": "cpu", "ready_workers": 1, "waiting": 0, "running": 0}
    assert (lost.status_code, lost.json()["error"]) == (503, "no GPU will come")
    assert 'kb_ray_bench_http_verdicts_total{status="forbidden"} 1.0' in metrics.text
    assert 'kb_ray_bench_http_responses_total{code="404",path="other"} 1.0' in metrics.text
    assert "kb_ray_bench_http_capacity 4.0" in metrics.text
    assert not any(word in metrics.text for word in ("zebra", "yak", "/a/path"))


async def test_openapi_describes_every_field_and_refusal() -> None:
    async with client() as http:
        schema = (await http.get("/openapi.json")).json()
    assert set(schema["paths"]) == {"/evaluate", "/evaluate/batch", "/healthz", "/metrics"}
    body = schema["components"]["schemas"]["EvaluateBody"]["properties"]
    assert {*arguments(), "problem_code", "n_correctness", "n_trials", "kernel_name", "priority"} <= set(body)
    assert {"401", "413", "422", "429", "503"} <= set(schema["paths"]["/evaluate"]["post"]["responses"])


async def test_a_batch_whose_client_leaves_is_taken_out_whole() -> None:
    verifier = StaticVerifier(capacity=2)
    async with client(verifier, ahead=0) as http:
        body = {"requests": [arguments(HANGS)] * 8}
        leaving = asyncio.create_task(http.post("/evaluate/batch", json=body))
        await asyncio.sleep(0.1)
        assert (verifier.running, (await http.get("/healthz")).json()["waiting"]) == (2, 6)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        after = (await http.get("/healthz")).json()
    assert (verifier.running, verifier.cancelled, after["waiting"], after["running"]) == (0, 2, 0, 0)
