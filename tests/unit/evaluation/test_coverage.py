"""An unfinished run is evaluated, and said to be unfinished, in every place where its rates are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb_ray.evaluate import main
from kb_ray.evaluation.coverage import coverage, coverage_of
from kb_ray.evaluation.options import parse
from kb_ray.evaluation.origins import notes_of
from kb_ray.evaluation.results import evaluate_store
from kb_ray.report import write_report
from kb_ray.traces.plans import PLANS_PREFIX, write_plan
from kb_ray.traces.store import Store, open_store
from tests.unit.evaluation.test_evaluate_store import page, put
from tests.unit.score.episodes import bad, episode, ok

SAID = "Unfinished: 2 of 4 planned episodes; the quick ones are what is there."


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two of four planned episodes, both right: those that end soonest."""
    opened = open_store(put(tmp_path / "store", episode("1_A", ok(2.0)), episode("2_B", ok(2.0))))
    write_plan(opened, [(f"kernelbench/1/{name}", 0) for name in ("1_A", "2_B", "3_C", "4_D")])
    return opened


def test_table_metrics_and_both_pages_say_that_a_run_is_unfinished(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from", store.uri, "--results", str(tmp_path / "r")]) == 0
    assert SAID in capsys.readouterr().out
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert (metrics["planned"], metrics["finished"]) == (4, 2)
    assert SAID in page(tmp_path / "r")["notes"]
    write_report(store, tmp_path / "report.html")
    assert SAID in page(tmp_path)["notes"]


def test_a_comparison_says_which_side_is_unfinished(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = put(tmp_path / "whole", episode("1_A", bad()), episode("2_B", bad()))
    assert main(["--compare", whole, store.uri, "--results", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert f"second: {SAID}" in out
    assert "first: Unfinished" not in out
    told = json.loads((tmp_path / "r" / "comparison.json").read_text())
    assert told["coverage"] == {"first": None, "second": {"planned": 4, "finished": 2, "damaged_plans": []}}


def test_of_a_run_its_own_plan_counts_and_not_an_earlier_wider_one(store: Store) -> None:
    chosen = {("kernelbench/1/1_A", 0)}
    found = evaluate_store(store, parse(["--from", store.uri])[0], lambda *key: key in chosen, chosen)
    assert found.covered is not None
    assert (found.results.planned, found.results.finished, found.covered.note) == (1, 1, None)


def test_plans_of_several_starts_count_together_and_a_store_without_one_says_nothing(
    store: Store, tmp_path: Path
) -> None:
    write_plan(store, [("kernelbench/1/1_A", 0), ("kernelbench/1/9_E", 0)])
    found = coverage_of(store)
    assert found is not None
    assert (found.planned, found.finished) == (5, 2)
    assert coverage(open_store(str(tmp_path / "none")), []) is None


def test_a_damaged_plan_is_said_and_silences_nothing(store: Store, tmp_path: Path) -> None:
    whole = write_plan(store, [("kernelbench/1/1_A", 0), ("kernelbench/1/9_E", 0)])
    (wide,) = set(store.list(PLANS_PREFIX)) - {whole}
    Path(store.uri, wide).write_text("{")
    one = f"Perhaps unfinished: {wide} cannot be read; 1 of 2 episodes that other plans name are there."
    assert notes_of(store, 0) == [one]
    results = evaluate_store(store, parse(["--from", store.uri])[0]).results
    assert (results.planned, results.finished) == (None, None)
    Path(store.uri, whole).write_text("")
    assert notes_of(store, 0)[0].startswith(
        f"Perhaps unfinished: {min(whole, wide)}, {max(whole, wide)} cannot be read"
    )
    write_report(store, tmp_path / "report.html")
    assert page(tmp_path)["notes"] == notes_of(store, 0)
