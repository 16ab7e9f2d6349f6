"""For the tests of deployments."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_engine_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` does not look under `engine`: vLLM need not be there, and takes seconds to import."""
    monkeypatch.setattr("kb_ray.serve_check.engine_faults", lambda config: iter(()))
