"""Rows of a `--jsonl` file: a setting that is nearly one is told, other columns are somebody else's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb_ray import status
from kb_ray.bench.__main__ import main
from kb_ray.setting_names import misspelt

KNOWN = ("kernel_code", "problem_code", "input_shapes", "n_correctness", "timeout_s", "tf32")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_corectness"}, "n_corectness: no such field; did you mean n_correctness?"),
        ({"timeout"}, "timeout: no such field; did you mean timeout_s?"),
        ({"input_shape"}, "did you mean input_shapes?"),
        ({"input_shape", "input_shapes"}, ""),
        ({"problem_id", "kernel_name", "level", "name", "id", "time"}, ""),
    ],
)
def test_what_is_nearly_a_setting_is_told(given: set[str], said: str) -> None:
    assert misspelt(given, KNOWN).endswith(said)
    assert bool(misspelt(given, KNOWN)) == bool(said)


def test_a_row_with_one_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "a", "kernel_code": "", "problem_code": "", "n_corectness": 2}) + "\n")
    assert main(["--jsonl", str(rows)]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "id": "a", "error": "line 1: n_corectness: no such field; did you mean n_correctness?",
    }  # fmt: skip


def test_advice_names_flags_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["store", "--jsno"]) == 2
    assert "did you mean --json?" in capsys.readouterr().err
