"""The HTTP service without Ray: what it answers, whom it lets in, and who goes first."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from kb_ray.bench.access import Access
from kb_ray.bench.api import answer, bench_request
from kb_ray.bench.bodies import Limits
from kb_ray.bench.host import Evaluator
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
    client,
    forbidden,
)  # fmt: skip

TOKEN = "a-token-of-enough-characters"


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
    told = {path: set(of[method]["responses"]) for path, of in schema["paths"].items() for method in of}
    written = (Path(__file__).parents[3] / "docs" / "reward_functions.md").read_text()
    codes = set(re.findall(r"^\| (\d{3}) \|", written, re.MULTILINE))
    assert {"401", "413", "422", "429", "500", "503"} == codes
    assert told["/evaluate"] == told["/evaluate/batch"] == codes | {"200"}
    assert "503" in told["/healthz"]


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
