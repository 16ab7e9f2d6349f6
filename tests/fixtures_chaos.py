"""How often each fault is tried, and the seed that its moments are drawn from. What takes `draw` is marked `chaos`.

KB_RAY_CHAOS_ROUNDS says how often; KB_RAY_CHAOS_SEED repeats what a failed test printed. The same seed draws the same
moments, which need not be the same moments of the run: machines are not equally fast twice.
"""

from __future__ import annotations

import os
import random

import pytest

ROUNDS = int(os.environ.get("KB_RAY_CHAOS_ROUNDS", "1"))
SEED = int(os.environ.get("KB_RAY_CHAOS_SEED") or random.SystemRandom().randrange(1 << 30))

ONLY_IN_CHAOS = pytest.mark.skipif(ROUNDS == 1, reason="only where each fault is tried several times: make chaos")
"""For what differs little from its neighbour and takes minutes."""


def pytest_report_header() -> str:
    return f"chaos: {ROUNDS} rounds, KB_RAY_CHAOS_SEED={SEED}"


@pytest.fixture(params=range(1, ROUNDS + 1), ids=lambda number: f"round{number}")
def draw(request: pytest.FixtureRequest) -> random.Random:
    """Draws for this test in this round."""
    print(f"KB_RAY_CHAOS_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "draw" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.chaos)
