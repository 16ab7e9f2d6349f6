"""The page about watching says what is exported, logged and concluded: each table is held against the code."""

from __future__ import annotations

import ast
from typing import get_args

from kb_ray.watching import presence, standing
from kb_ray.watching.catalogue import ALL
from tests.unit.test_docs import ROOT, SPAN, page, tables

PAGE = page(ROOT / "docs" / "watching.md")


def table(column: str) -> list[dict[str, str]]:
    return next(rows for rows in tables(PAGE) if column in rows[0])


def test_the_table_of_metrics_is_the_catalogue() -> None:
    told = {SPAN.findall(row["Metric"])[0]: (row["Kind"], row["Labels"]) for row in table("Metric")}
    assert list(told) == [metric.name for metric in ALL]
    for metric in ALL:
        kind, labels = told[metric.name]
        assert kind == metric.kind
        assert SPAN.findall(labels) == list(metric.labels)
        listed = labels.partition(": ")[2]
        assert not listed or tuple(listed.split(", ")) == next(iter(metric.labels.values()))


def test_every_state_is_explained_with_the_limit_in_force() -> None:
    assert [row["State"] for row in table("State")] == list(get_args(standing.State))
    limit = standing._MISSED * presence.TELL_EVERY_S + standing._SLACK_S
    assert f"within the last {limit:.0f} seconds" in table("State")[0]["Meaning"]


def test_every_event_of_the_log_is_in_the_table() -> None:
    said = set()
    for path in (ROOT / "kb_ray").rglob("*.py"):
        if path.name == "logs.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and called in ("logs.say", "logs.warn", "logs.tell"):
                assert isinstance(node.args[1], ast.Constant), ast.unparse(node)
                said.add(node.args[1].value)
    assert {"plan", "turn", "episode", "summary"} <= said
    assert {event for row in table("Event") for event in SPAN.findall(row["Event"])} == said
