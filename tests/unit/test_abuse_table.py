"""The table of hostile candidates: whichever goal is missed is marked, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import abuse

HELD = {"processes": 4, "recorded_groups": 1, "files": 14, "trusted_mib": 900, "trusted_descriptors": 23}


def report(**more: Any) -> dict[str, Any]:
    """Of a run in which every goal was met, but for what is told."""
    found = {
        "machine": {"cores": 2, "load": 1.0}, "hostile": 20, "honest": 5, "workers": 1, "concurrency": 2,
        "seconds": 9.0, "wrong": [], "infra_errors": 0, "infra_retries": 3, "restarts": 1, "statuses": {},
        "verdicts_per_s": {"before": 1.0, "after": 1.0, "change": 0.0}, "idle": HELD, "left": HELD,
        "processes_after": [], "new_outside": {"temporary files": [], "shared memory": []},
    }  # fmt: skip
    found |= more
    return found | {"faults": abuse._faults(found)}


def missed(of: dict[str, Any]) -> list[str]:
    """What the rows are about whose goal is marked."""
    return [row.split(" | ")[0].strip("| ") for row in abuse.render(of).splitlines() if "**missed**" in row]


def test_of_a_run_that_met_every_goal_none_is_marked() -> None:
    assert missed(report()) == []
    assert missed(report(left={what: count + abuse._GROWTH[what] for what, count in HELD.items()})) == []


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"wrong": ["honest, right: crash"]}, "honest verdicts that were wrong"),
        ({"infra_errors": 2}, "candidates without a verdict"),
        ({"processes_after": ["7 sleep"]}, "processes once the pool is closed"),
        ({"new_outside": {"temporary files": ["x"]}}, "new temporary files, shared memory, segments"),
        *(
            ({"left": HELD | {name: HELD[name] + grown + 1}}, f"{abuse._WORDS[name]}, before and after")
            for name, grown in abuse._GROWTH.items()
        ),
    ],
)
def test_a_missed_goal_is_marked_in_its_row_and_in_that_of_the_faults(more: dict[str, Any], what: str) -> None:
    assert missed(report(**more)) == [what, "faults"]


def test_the_speed_is_marked_and_is_no_fault() -> None:
    slower = {"before": 1.0, "after": 0.8, "change": -0.2}
    assert missed(report(verdicts_per_s=slower)) == ["honest verdicts a second, before and after"]
