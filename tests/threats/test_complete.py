"""Every row of the list of threats has a case or a test that names it, on the device that can show it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.threats.record import Case, honest, threats

ROOT = Path(__file__).parents[2]
ROWS = [f"A{n:02}" for n in range(1, 84)] + [f"B{n:02}" for n in range(1, 54)]
NEEDS_A_GPU = {*("A57", "A60", "A65", "A66", "A80", "A81", "B01", "B16", "B18", "B31", "B32", "B47", "B52", "B53"),
                *(f"B{n}" for n in range(35, 44))}  # fmt: skip
"""Rows that no CPU can show: all others need a case or test that runs without a GPU."""
MOST_DECLARED = 6
ATTACKS, LOOK_ALIKES = 60, 30


@cache
def named_by_tests() -> frozenset[str]:
    """Rows that stand in the name of a test that needs no GPU."""
    return frozenset(
        row for path in (ROOT / "tests").rglob("test_*.py") if "gpu" not in path.parts for row in _rows(path)
    )


def _rows(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from (row.upper() for row in re.findall(r"(?i)(?<![a-z0-9])([ab]\d\d)(?![a-z0-9])", node.name))


@cache
def declared() -> tuple[str, ...]:
    """Rows that the documentation says are not covered; none where it has no such section."""
    text = (ROOT / "docs" / "verifier.md").read_text(encoding="utf-8")
    section = re.search(r"^## Declared uncovered$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r"^- \**([AB]\d\d)\b", section.group(1), re.MULTILINE)) if section else ()


def cases() -> list[Case]:
    return [*threats(), *honest()]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_covered_where_it_can_be_shown(row: str) -> None:
    mine = [case for case in cases() if case.id == row]
    if row in declared():
        assert not mine, "declared as uncovered, and covered"
    elif row in NEEDS_A_GPU:
        assert mine or row in named_by_tests()
    else:
        assert row in named_by_tests() or any(case.where != "gpu" for case in mine)


def test_little_is_declared_uncovered_and_nothing_that_a_cpu_can_show() -> None:
    assert len(declared()) == len(set(declared())) <= MOST_DECLARED
    assert set(declared()) <= NEEDS_A_GPU


def test_no_case_has_a_row_that_does_not_exist() -> None:
    assert {case.id for case in cases()} <= set(ROWS)


def test_the_suites_are_as_large_as_promised() -> None:
    assert len(threats("cpu")) >= ATTACKS
    assert len(honest("cpu")) >= LOOK_ALIKES
