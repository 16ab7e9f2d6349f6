"""What a candidate may use where nobody says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from kb_ray.bench.child import allowance
from kb_ray.bench.child.allowance import machine_memory, usual

GIB = 1 << 30


@pytest.mark.parametrize(
    ("device", "role", "at_once", "gib"),
    [
        ("cpu", "candidates", 1, 8),
        ("cpu", "candidates", 4, 2),
        ("cpu", "references", 4, 10),
        ("cuda", "candidates", 12, 16),
        ("cuda", "references", 12, 64),
    ],
)
def test_candidates_on_cpus_share_half_of_the_machine(
    device: Literal["cpu", "cuda"],
    role: Literal["candidates", "references"],
    at_once: int,
    gib: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "machine_memory", lambda: 16 * GIB)
    assert usual(device, role, at_once).memory_bytes == gib * GIB


def test_a_machine_with_much_memory_gives_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "machine_memory", lambda: 512 * GIB)
    assert usual("cpu", "candidates", 2).memory_bytes == 10 * GIB


@pytest.mark.parametrize(("limit", "counts"), [("max\n", False), (f"{GIB}\n", True), ("9223372036854771712\n", False)])
def test_a_container_has_what_it_may_use(limit: str, counts: bool, tmp_path: Path) -> None:
    whole = machine_memory([])
    (tmp_path / "limit").write_text(limit)
    assert machine_memory([tmp_path / "limit", tmp_path / "absent"]) == (GIB if counts else whole) <= whole
