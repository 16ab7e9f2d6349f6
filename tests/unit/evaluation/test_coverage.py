"""An unfinished run is evaluated, and said to be unfinished, in every place where its rates are read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kb_ray.evaluate import main
from kb_ray.evaluation.coverage import coverage, coverage_of
from kb_ray.evaluation.options import parse
from kb_ray.evaluation.origins import notes_of
from kb_ray.evaluation.results import evaluate_store
from kb_ray.report import write_report
from kb_ray.traces.plans import PLANS_PREFIX, write_plan
from kb_ray.traces.reading import survey
from kb_ray.traces.starts import Start, start_key, write_start
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
    assert told["coverage"] == {
        "first": None,
        "second": {
            "planned": 4,
            "finished": 2,
            "damaged_plans": [],
            "lost": 0,
            "damaged_files": 0,
        },
    }


def test_of_a_run_its_own_plan_counts_and_not_an_earlier_wider_one(store: Store) -> None:
    chosen = {("kernelbench/1/1_A", 0)}
    found = evaluate_store(store, parse(["--from", store.uri])[0], lambda *key: key in chosen, chosen)
    assert found.covered is not None
    assert (found.results.planned, found.results.finished, found.covered.note) == (1, 1, None)


def test_plans_of_several_starts_count_together_and_a_store_without_one_says_nothing(
    store: Store, tmp_path: Path
) -> None:
    write_plan(store, [("kernelbench/1/1_A", 0), ("kernelbench/1/9_E", 0)])
    found = coverage_of(survey(store))
    assert found is not None
    assert (found.planned, found.finished) == (5, 2)
    assert coverage(open_store(str(tmp_path / "none")), []) is None


def test_a_damaged_plan_is_said_and_silences_nothing(store: Store, tmp_path: Path) -> None:
    whole = write_plan(store, [("kernelbench/1/1_A", 0), ("kernelbench/1/9_E", 0)])
    (wide,) = set(store.list(PLANS_PREFIX)) - {whole}
    Path(store.uri, wide).write_text("{")
    one = f"Perhaps unfinished: {wide} cannot be read; 1 of 2 episodes that other plans name are there."
    assert notes_of(survey(store), 0) == [one]
    results = evaluate_store(store, parse(["--from", store.uri])[0]).results
    assert (results.planned, results.finished) == (None, None)
    Path(store.uri, whole).write_text("")
    assert notes_of(survey(store), 0)[0].startswith(
        f"Perhaps unfinished: {min(whole, wide)}, {max(whole, wide)} cannot be read"
    )
    write_report(store, tmp_path / "report.html")
    assert page(tmp_path)["notes"] == notes_of(survey(store), 0)


def started(store: Store, plan: str, ending: str | None, planned: int = 4) -> None:
    now = datetime.now(UTC)
    start = Start(
        run_id="r", host="h", pid=1, began_at=now.isoformat(), seen_at=now.isoformat(), every_s=1, planned=planned,
        earlier=0, ending=ending, plan=plan,
    )  # fmt: skip
    write_start(store, start_key(now), start)


def flip(path: Path) -> None:
    """Alters a byte that no column of names is in: only the hash tells."""
    data = bytearray(path.read_bytes())
    data[4] ^= 1
    path.write_bytes(bytes(data))


def test_what_a_damaged_file_held_is_lost_and_not_unfinished(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(Path(store.uri), episode("3_C", ok(2.0)), episode("4_D", ok(2.0)))
    (plan,) = store.list(PLANS_PREFIX)
    started(store, plan, "done")
    whole = put(tmp_path / "whole", episode("1_A", bad()), episode("3_C", bad()))
    flip(Path(store.uri, store.list("parts/")[1]))
    said = "Lost: 2 of 4 planned episodes were done, in files that are damaged or gone."
    assert main(["--from", store.uri, "--skip-corrupt", "--results", str(tmp_path / "r")]) == 0
    assert said in capsys.readouterr().out.splitlines()
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert (metrics["planned"], metrics["finished"], metrics["lost"]) == (4, 2, 2)
    write_report(store, tmp_path / "report.html", skip_corrupt=True)
    assert page(tmp_path)["notes"] == page(tmp_path / "r")["notes"] == [said]
    assert main(["--compare", store.uri, whole, "--skip-corrupt", "--results", str(tmp_path / "c")]) == 0
    told = capsys.readouterr()
    assert f"first: {said}" in told.out
    assert "skipped: parts/" in told.err
    # Compacted, or removed by hand, nothing is damaged any longer, and they are lost all the same.
    store.delete(store.list("parts/")[1])
    assert notes_of(survey(store), 0) == [said]


def test_what_is_lost_and_what_was_never_done_are_told_apart(store: Store) -> None:
    started(store, write_plan(store, [("kernelbench/1/1_A", 0), ("kernelbench/1/3_C", 0)]), "done", 2)
    lost = "Lost: 1 of 4 planned episodes were done, in files that are damaged or gone."
    opening = "Unfinished: 3 of 4 planned episodes were done; the quick ones are what is there."
    assert notes_of(survey(store), 0) == [f"{opening} {lost}"]


def test_where_no_start_says_that_all_was_done_a_damaged_file_may_hold_some(store: Store) -> None:
    put(Path(store.uri), episode("3_C", ok(2.0)))
    flip(Path(store.uri, store.list("parts/")[1]))
    started(store, store.list(PLANS_PREFIX)[0], None)
    maybe = "Some of what is not there may be in damaged files, which are left out: 1."
    assert notes_of(survey(store, skip_corrupt=True), 0) == [f"{SAID} {maybe}"]
