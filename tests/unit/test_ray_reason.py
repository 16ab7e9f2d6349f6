"""Why Ray did not start: one line of bounded length with both ends of what Ray says, since it quotes whole logs."""

from __future__ import annotations

import pytest
import ray

from kb_ray import cluster
from kb_ray.errors import InfraError

QUOTED = (
    "The last 20 lines of dashboard.log:\n"
    + "  File head.py, line 153\n" * 90
    + "FrontendNotFoundError: no client/build"
)


@pytest.mark.parametrize(("said", "expected"), [("no room", "no room"), ("", "RuntimeError"), (QUOTED, None)])
def test_the_reason_is_told(said: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")

    def fails(**_: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(ray, "init", fails)
    with pytest.raises(InfraError) as raised:
        cluster.connect("run")
    told = str(raised.value)
    assert told.startswith(f"Ray did not start here: {expected or 'The last 20 lines of dashboard.log: '}")
    assert "\n" not in told
    assert len(told) < 700
    assert expected is not None or "FrontendNotFoundError: no client/build; try again" in told
