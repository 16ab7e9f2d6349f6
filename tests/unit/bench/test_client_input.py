"""What the HTTP client is given and cannot send: refused here, or its reference's fault; one line, no secret."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from kb_ray.bench.access import Access
from kb_ray.bench.bodies import Limits
from kb_ray.bench.client import BenchClient
from kb_ray.bench.service import Service
from kb_ray.errors import ConfigError, ReferenceFault
from tests.unit.bench.http_pieces import StaticVerifier, arguments, serving

SECRET = "a-token-of-enough-characters"


def test_a_token_from_a_file_has_its_line_end_taken_off() -> None:
    with (
        serving(Service(StaticVerifier(), "cpu"), Access({"a": SECRET})) as url,
        BenchClient(url, f"{SECRET}\n") as client,
    ):
        assert client.evaluate(**arguments())["status"] == "forbidden"


@pytest.mark.parametrize("token", [f"{SECRET}\nmore", f"{SECRET}\u2026"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="characters that no header can carry") as refused:
        BenchClient("http://127.0.0.1:1", token)
    assert SECRET not in str(refused.value)


NESTED: Any = functools.reduce(lambda inner, _: [inner], range(100_000), 8)
OF_THE_REFERENCE = {
    "shape must be a list of sizes, not [nan]": {"input_shapes": {"x": {"shape": [math.nan]}}},
    "shape must be a list of sizes, not [inf]": {"input_shapes": json.loads('{"x": {"shape": [1e999]}}')},
    "input_shapes cannot be read": {"input_shapes": {"x": {"shape": NESTED}}},
    "input_shapes is not JSON": {"input_shapes": "x: 16"},
    "unknown dtype": {"input_shapes": {"x": {"shape": [8], "dtype": "\ud800"}}},
    "input_shapes cannot be written as JSON": {"input_shapes": {"\ud800": {"shape": [8]}}},
    "129 inputs, 128 are allowed": {"input_shapes": {f"x{n}": {"shape": [8]} for n in range(129)}},
    "reference_torch_code cannot be written as JSON": {"reference_torch_code": "x = '\ud800'"},
    "problem_code cannot be written as JSON": {
        "reference_torch_code": None, "input_shapes": None, "problem_code": "\ud800",
    },
}  # fmt: skip
"""What rows of a data set may hold and no task can be made of, by what is said of it."""


@pytest.fixture
def url() -> Iterator[str]:
    with serving(Service(StaticVerifier(), "cpu")) as url:
        yield url


@pytest.mark.parametrize(("said", "bad"), OF_THE_REFERENCE.items(), ids=OF_THE_REFERENCE)
def test_a_bad_row_is_its_references_fault_and_costs_its_own_request_alone(
    url: str, said: str, bad: dict[str, Any]
) -> None:
    wanted = [arguments(), arguments(request_id="mine", **bad), arguments("\ud800", **bad), arguments()]
    with BenchClient(url) as client:
        with pytest.raises(ReferenceFault) as refused:
            client.evaluate(**wanted[1])
        many, streamed = client.batch(wanted), [got for _, got in client.stream(wanted)]
    assert said in str(refused.value)
    for got in (many, streamed):
        assert [one["status"] for one in got] == ["forbidden", "infra_error", "syntax_error", "forbidden"]
        assert got[1]["request_id"] == "mine"
        assert got[1]["error"].startswith("REFERENCE ERROR: ")
        assert said in got[1]["error"]
        assert "\n" not in got[1]["error"]


def test_what_a_row_holds_beside_shapes_and_no_request_can_is_left_out(url: str) -> None:
    row = {"x": {"shape": (8,), "scale": math.nan}, "y": None}
    with BenchClient(url) as client:
        assert client.evaluate(**arguments(input_shapes=row))["status"] == "forbidden"


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("wrong", [{"timeout_s": math.inf}, {"n_trials": object()}, {"kernel_name": "\ud800"}])
def test_what_the_caller_chose_and_no_request_can_hold_is_one_line(url: str, wrong: dict[str, Any], many: bool) -> None:
    with BenchClient(url) as client, pytest.raises(ConfigError, match=r"^[^\n]*cannot be written as JSON[^\n]*$"):
        client.batch([arguments(**wrong)]) if many else client.evaluate(**arguments(**wrong))


def test_a_body_that_is_too_large_is_the_fault_of_the_reference_that_made_it_so() -> None:
    long = "x = 1  # and so on\n" * 20_000
    with (
        serving(Service(StaticVerifier(), "cpu", limits=Limits(body_bytes=200_000))) as url,
        BenchClient(url) as client,
    ):
        wanted = [arguments(reference_torch_code=long), arguments()]
        got = [verdict["error"].partition(":")[0] for _, verdict in client.stream(wanted)]
        assert got == ["REFERENCE ERROR", "NOT ALLOWED"]
        with pytest.raises(ConfigError, match="413"):
            client.evaluate(**arguments(request_id=long))
        with pytest.raises(ConfigError, match="413"):
            client.batch(wanted)
