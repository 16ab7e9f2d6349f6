"""What is said beforehand of a machine's confinement is worded as its verdicts word it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray import doctor
from kb_ray.bench import level as probing
from kb_ray.bench.child import cgroup


class Bounded:
    """A cgroup that was to be had."""

    def __init__(self) -> None:
        self.removed = False

    def remove(self) -> bool:
        self.removed = True
        return True


@pytest.mark.parametrize("cuda", [False, True])
def test_the_last_word_is_what_bounds_a_candidate(cuda: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "find", lambda: None)
    without = probing.level(cuda)
    assert without.startswith("rlimits+")
    assert without.endswith("+watchdog")
    bounded, folder = Bounded(), tmp_path / "kb_ray-1"
    folder.mkdir()
    monkeypatch.setattr(cgroup, "find", lambda: folder)
    monkeypatch.setattr(cgroup, "confine", lambda *given: bounded)
    assert probing.level(cuda) == without.removesuffix("watchdog") + "cgroup"
    assert bounded.removed
    assert not folder.exists()


@pytest.mark.parametrize(
    ("level", "lacking"),
    [
        ("rlimits+caps+landlock7+seccomp+watchdog", ""),
        ("rlimits+caps+landlock7+watchdog", "without seccomp: see"),
        ("none (['x'])", "without landlock and seccomp: see"),
    ],
)
def test_the_doctor_advises_where_a_part_is_missing(level: str, lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_run", lambda command, cwd=None: level if "-c" in command else "")
    found, advice = doctor._sandbox()
    assert found == level
    assert (lacking in advice) if lacking else not advice
