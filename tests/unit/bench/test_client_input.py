"""What the HTTP client is given and cannot send is refused here, in one line that tells no secret."""

from __future__ import annotations

import pytest

from kb_ray.bench.access import Access
from kb_ray.bench.client import BenchClient
from kb_ray.bench.service import Service
from kb_ray.errors import ConfigError
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


def test_half_a_surrogate_pair_is_one_line() -> None:
    with BenchClient("http://127.0.0.1:1") as client, pytest.raises(ConfigError, match="surrogate"):
        client.evaluate(**{**arguments(), "reference_torch_code": "x = '\ud800'"})
