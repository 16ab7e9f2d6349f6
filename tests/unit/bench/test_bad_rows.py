"""A row of a data set that no task can be made of, sent to the HTTP service as it stands, by whatever client."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from kb_ray.bench.service import Service
from tests.unit.bench.http_pieces import StaticVerifier, arguments, serving

ROWS = {
    "half a character": {"input_shapes": {"\ud800": {"shape": [8]}}},
    "129 inputs": {"input_shapes": {f"x{n}": {"shape": [8]} for n in range(129)}},
    "not [nan]": {"input_shapes": {"x": {"shape": [float("nan")]}}},
    "no valid Python": {"reference_torch_code": "x = '\ud800'"},
}
"""By what is said of each."""


@pytest.mark.parametrize(("said", "bad"), ROWS.items(), ids=ROWS)
def test_it_is_its_references_fault_and_no_reason_to_refuse_the_others_of_a_batch(
    said: str, bad: dict[str, Any]
) -> None:
    def post(path: str, body: dict[str, Any]) -> httpx.Response:
        # Python's JSON, which has words for what httpx refuses to send.
        return httpx.post(url + path, content=json.dumps(body), headers={"Content-Type": "application/json"})

    with serving(Service(StaticVerifier(), "cpu")) as url:
        one = post("/evaluate", arguments(**bad))
        many = post("/evaluate/batch", {"requests": [arguments(), arguments(**bad)]})
    assert (one.status_code, one.headers["X-KB-Ray-Fault"]) == (422, "reference")
    assert said in one.json()["error"]
    assert [got["status"] for got in many.json()] == ["forbidden", "infra_error"]
    assert said in many.json()[1]["error"]
