"""What the HTTP service refuses of bodies, and in which words: no JSON, too large, fields that cannot be used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kb_ray.bench.access import Access
from kb_ray.bench.bodies import Limits
from kb_ray.bench.service import Service, make_app
from tests.unit.bench.http_pieces import REFERENCE, SHAPES, StaticVerifier, arguments, client

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


NO_JSON = {
    "the body is no JSON: Expecting": b"{",
    "no JSON": b"",
    "no JSON: it is no UTF-8 (byte 17)": b'{"kernel_code": "\xff"}',
    "Exceeds the limit (4300 digits)": b'{"n_trials": ' + b"1" * 5000 + b"}",
    "maximum recursion depth": b"[" * 100_000,
}


@pytest.mark.parametrize(("said", "body"), [*BAD.items(), *NO_JSON.items()], ids=[*BAD, *NO_JSON])
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
    assert got.status_code == 422
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


@pytest.mark.parametrize("length", ["9" * 5000, "\u00b2", "-1"])
async def test_a_length_that_is_none_is_refused(length: str) -> None:
    async with client() as http:
        headers = {"Content-Type": "application/json", b"Content-Length": length.encode("latin-1")}
        got = await http.post("/evaluate", content=b"{}", headers=headers)
    assert got.status_code == 413
    assert len(got.json()["error"]) < 300


async def test_who_leaves_while_its_body_is_read_is_noted_as_gone() -> None:
    service, codes = Service(StaticVerifier(), "cpu"), list[int]()
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    scope = {
        "type": "http", "method": "POST", "path": "/evaluate", "raw_path": b"/evaluate", "root_path": "",
        "query_string": b"", "headers": [(b"content-type", b"application/json")], "client": ("127.0.0.1", 1),
    }  # fmt: skip

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        codes.extend([message["status"]] if "status" in message else [])

    await make_app(service, Access({}))(scope, receive, send)
    assert codes == [499]
