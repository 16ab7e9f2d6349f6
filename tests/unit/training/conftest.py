"""One thread for models of a few thousand weights, of which many wait for each other; what runs begin with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Places of the adapters that runs begin with, in order; they begin as ever."""
    from kb_ray.training import keeping

    places, real = list[str](), keeping.start_from

    def start_from(learner: Any, path: str) -> None:
        places.append(path)
        real(learner, path)

    monkeypatch.setattr(keeping, "start_from", start_from)
    return places
