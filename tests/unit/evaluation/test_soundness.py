"""A row whose trusted speedup is impossible is damaged: refused by name, or left out and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb_ray.evaluate import main
from tests.unit.evaluation.test_evaluate_store import put
from tests.unit.score.episodes import bad, episode, ok


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
        assert f"row 1 (kernelbench/1/2_B, sample 0): a trusted speedup of {speedup:g}" in err
        assert err.count("\n") == 1
    assert main(["--from", store, "--skip-corrupt", *results]) == 0
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert metrics["summary"]["overall"]["episodes"] == 1
    assert len(metrics["skipped_files"]) == 1
    assert "a trusted speedup of" in capsys.readouterr().err


def test_one_that_is_not_trusted_counts_nowhere_and_stays(tmp_path: Path) -> None:
    spoilt = episode("2_B", ok(2.0, trusted=False).model_copy(update={"speedup": float("inf")}))
    assert main(["--from", put(tmp_path / "store", spoilt), "--results", str(tmp_path / "r")]) == 0
