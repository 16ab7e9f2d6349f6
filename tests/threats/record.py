"""What a case of the adversarial or the honest suite is, and the collection of them all.

Modules `a_*` offer `THREATS`, a sequence of `Threat`; modules `b_*` and `honest*` offer `HONEST`, a sequence of
`Honest`. Knows nothing of how a case is run or of what any verdict should rest on.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import tests.threats
from kb_ray.records import Status, Task, Verdict
from tests.fixtures_bench import ADD_RELU

Where = Literal["cpu", "gpu", "both"]
Device = Literal["cpu", "cuda"]
Refusal = frozenset[Status] | Callable[[Verdict], bool]
"""The statuses an attack may end in, or what else must be true of its verdict (flagged, reported, not trusted)."""


@dataclass(frozen=True)
class Threat:
    """One attack. `id` is its row in the list of threats (`A07`); several cases may share a row.

    `settings` go to BenchSettings as they are; n_correctness is 3 unless they say so. ValueError if `expected`
    would let a plain `ok` pass.
    """

    id: str
    name: str
    code: str
    expected: Refusal
    task: Task = ADD_RELU
    where: Where = "cpu"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_id("A", self.id)
        if not callable(self.expected) and (not self.expected or Status.OK in self.expected):
            raise ValueError(f"{self.id} {self.name}: expected statuses must be given and must not hold ok")

    def complaint(self, verdict: Verdict) -> str | None:
        """None where the verdict is as it should be, else what it is instead."""
        right = self.expected(verdict) if callable(self.expected) else verdict.status in self.expected
        return None if right else said(verdict)


@dataclass(frozen=True)
class Honest:
    """One honest candidate that looks like trouble. `id` is its row (`B09`). The only right status is ok."""

    id: str
    name: str
    code: str
    task: Task = ADD_RELU
    where: Where = "cpu"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_id("B", self.id)

    def complaint(self, verdict: Verdict) -> str | None:
        """None where the candidate was accepted, else what it was taken for."""
        return None if verdict.status is Status.OK else said(verdict)


Case = Threat | Honest


def status(*names: str) -> frozenset[Status]:
    """`status("mismatch", "hack")` as a set of statuses."""
    return frozenset(Status(name) for name in names)


def said(verdict: Verdict) -> str:
    """Status, stage, message and flags of a verdict in one line."""
    error = verdict.error.message.replace("\n", " ")[:300] if verdict.error else ""
    flags = f" flags: {', '.join(verdict.evidence.flags)}" if verdict.evidence.flags else ""
    return f"{verdict.status} at {verdict.stage}: {error}{flags}"


def label(case: Case) -> str:
    """Name of a case in lists and test ids."""
    return f"{case.id} {case.name}"


def runs_on(case: Case, device: Device) -> bool:
    """Whether the case says something on this device."""
    return case.where == "both" or case.where == {"cpu": "cpu", "cuda": "gpu"}[device]


def threats(device: Device | None = None) -> list[Threat]:
    """Every attack, or those of one device, in the order of their ids. ValueError on two of one name."""
    return _collected(("a_",), "THREATS", device)


def honest(device: Device | None = None) -> list[Honest]:
    """Every honest look-alike, or those of one device, in the order of their ids. ValueError on two of one name."""
    return _collected(("b_", "honest"), "HONEST", device)


def _collected(prefixes: tuple[str, ...], attribute: str, device: Device | None) -> list[Any]:
    cases: list[Any] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(tests.threats.__path__) if m.name.startswith(prefixes)):
        cases += getattr(importlib.import_module(f"tests.threats.{module}"), attribute)
    _check_names(cases)
    kept = [case for case in cases if device is None or runs_on(case, device)]
    return sorted(kept, key=lambda case: case.id)


def _check_id(family: str, given: str) -> None:
    if not re.fullmatch(rf"{family}\d\d", given):
        raise ValueError(f"{given} is no row of the list of threats: write {family} and two digits")


def _check_names(cases: Iterable[Case]) -> None:
    seen: set[str] = set()
    for case in cases:
        if label(case) in seen:
            raise ValueError(f"two cases are called {label(case)!r}")
        seen.add(label(case))
