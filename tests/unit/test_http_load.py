"""What the benchmark of evaluation over HTTP calls flat memory, from samples made by hand."""

from __future__ import annotations

import pytest

from benchmarks.http_load import BAD, ROLES, not_flat

PROXY = "ProxyActor"


@pytest.mark.parametrize(
    ("role", "samples", "flat"),
    [
        (PROXY, [100, 104, 101, 105], True),
        (PROXY, [100, 90, 90, 105.5], False),
        (PROXY, [110, 90, 105, 90], True),
        (PROXY, [0, 0, 0, 100, 100, 106], False),
        (PROXY, [0, 0, 0], False),
        (PROXY, [100], False),
    ],
    ids=[
        "within five per cent", "one peak above", "less than before", "from when it was there", "never seen",
        "seen once",
    ],
)  # fmt: skip
def test_memory_is_flat_where_the_second_half_needs_no_more_than_the_first(
    role: str, samples: list[float], flat: bool
) -> None:
    assert not_flat({role: samples}) == ([] if flat else [role])


def test_what_grew_is_named_and_fails_the_run() -> None:
    memory = {role: [100.0, 100.0, 100.0, 200.0 if role == PROXY else 100.0] for role in ROLES}
    assert not_flat(memory) == [PROXY]
    assert "not_flat" in BAD
