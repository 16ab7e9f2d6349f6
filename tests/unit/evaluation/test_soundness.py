"""What is damaged in a store though it can be read: rows of an impossible speedup, and what run.json says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb_ray.compact import compact
from kb_ray.errors import ConfigError
from kb_ray.evaluate import main
from kb_ray.export import main as export
from kb_ray.report import write_report
from kb_ray.traces.store import open_store
from kb_ray.verifying.checking import check
from tests.unit.evaluation.test_evaluate_store import put
from tests.unit.score.episodes import bad, episode, ok


def test_no_reader_takes_such_a_row(tmp_path: Path) -> None:
    spoilt = episode("2_B", ok(2.0).model_copy(update={"speedup": float("inf")}))
    store = put(tmp_path / "store", episode("1_A", ok(1.5)), spoilt)
    with pytest.raises(ConfigError, match="a trusted speedup of inf"):
        write_report(store, tmp_path / "page.html")
    with pytest.raises(ConfigError, match="a trusted speedup of inf"):
        compact(open_store(store))
    assert export([store, "--view", "rl", "--output", str(tmp_path / "rl")]) == 2
    assert [fault.kind for fault in check(open_store(store)).faults if "speedup" in fault.what] == ["row"]
    assert write_report(store, tmp_path / "page.html", skip_corrupt=True).episodes == 1


@pytest.mark.parametrize("speedup", [float("inf"), float("nan"), 0.0, -1.0])
def test_an_impossible_speedup_is_one_line_that_names_the_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], speedup: float
) -> None:
    spoilt = episode("2_B", ok(2.0).model_copy(update={"speedup": speedup}))
    store = put(tmp_path / "store", episode("1_A", bad()), spoilt)
    results = ["--results", str(tmp_path / "r")]
    for argv in (["--from", store], ["--compare", store, put(tmp_path / "other", episode("1_A", bad()))]):
        assert main([*argv, *results]) == 2
        err = capsys.readouterr().err
        assert f"row 1 is no episode: kernelbench/1/2_B, sample 0: a trusted speedup of {speedup:g}" in err
        assert err.count("\n") == 1
    assert main(["--from", store, "--skip-corrupt", *results]) == 0
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert metrics["summary"]["overall"]["episodes"] == 1
    assert len(metrics["skipped_files"]) == 1
    assert "a trusted speedup of" in capsys.readouterr().err


def test_one_that_is_not_trusted_counts_nowhere_and_stays(tmp_path: Path) -> None:
    spoilt = episode("2_B", ok(2.0, trusted=False).model_copy(update={"speedup": float("inf")}))
    assert main(["--from", put(tmp_path / "store", spoilt), "--results", str(tmp_path / "r")]) == 0


def test_a_damaged_run_json_is_refused_and_its_lack_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = put(tmp_path / "store", episode("1_A", ok(1.5)))
    run = tmp_path / "store" / "run.json"
    run.unlink(missing_ok=True)
    results = ["--results", str(tmp_path / "r")]
    assert main(["--from", store, *results]) == 0
    run.write_text('{"run_id": 7}')
    capsys.readouterr()
    assert main(["--from", store, *results]) == 2
    assert export([store, "--view", "rl", "--output", str(tmp_path / "rl")]) == 2
    with pytest.raises(ConfigError, match="remove it to read the traces without"):
        write_report(store, tmp_path / "page.html")
    told = capsys.readouterr().err
    assert told.count("run.json is damaged or of another kb_ray: put a copy of it back, or remove it") == 2
