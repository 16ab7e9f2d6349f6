"""Rows of a `--jsonl` file: a setting that is nearly one is told, other columns are somebody else's; so are rows that
are missing, and flags that they have no use for."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray import status
from kb_ray.bench import __main__ as bench_command
from kb_ray.bench.__main__ import main
from kb_ray.bench.api import answer
from kb_ray.records import Stage, Status, Verdict
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


PROBLEM = "def reference_impl(x):\n    return x\n\n\ndef get_inputs():\n    return [1]\n"
ANSWER = answer(Verdict.of(Status.OK, Stage.TIMING, speedup=2.0))


def judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *rows: dict[str, Any]
) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the answers, where every kernel has no code."""
    monkeypatch.setattr(bench_command, "evaluate_here", lambda request: Verdict.of(Status.NO_CODE, Stage.EXTRACT))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = main(["--jsonl", str(tmp_path / "rows.jsonl")])
    return code, sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda row: str(row["id"]))


def test_rows_that_earlier_answers_are_joined_to_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {"kernel_code": "", "problem_code": PROBLEM}
    joined = [sources | {"id": name, name: value} for name, value in ANSWER.items()]
    code, answers = judged(tmp_path, monkeypatch, capsys, ANSWER | sources | {"id": "all"}, *joined)
    assert ANSWER.keys() >= Verdict.model_fields.keys()
    assert [row["id"] for row in answers] == sorted([*ANSWER, "all"])
    assert (code, {row.get("status") for row in answers}) == (1, {"no_code"})


def test_beside_an_earlier_answer_a_misspelt_setting_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ANSWER | {"id": "a", "kernel_code": "", "problem_code": PROBLEM, "n_corectness": 2}
    assert judged(tmp_path, monkeypatch, capsys, row) == (
        2, [{"id": "a", "error": "line 1: n_corectness: no such field; did you mean n_correctness?"}],
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_rows_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(text)
    assert main(["--jsonl", str(rows)]) == 2
    assert tuple(capsys.readouterr()) == ("", f"error: {rows} has no rows\n")


def test_standard_input_without_rows_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["--jsonl", "-"]) == 2
    assert tuple(capsys.readouterr()) == ("", "error: standard input has no rows\n")


@pytest.mark.parametrize("others", [["--jsonl", "rows.jsonl"], ["--recheck", "store"]])
@pytest.mark.parametrize("one_files", [["--reference", "ref.py"], ["--input-shapes", "{}"]])
def test_flags_of_one_file_beside_many_are_told(
    capsys: pytest.CaptureFixture[str], others: list[str], one_files: list[str]
) -> None:
    assert main([*others, *one_files]) == 2
    said = "error: --reference and --input-shapes are for CANDIDATE.py: rows and stores have their own"
    assert tuple(capsys.readouterr()) == ("", f"{said}; see python -m kb_ray.bench --help\n")


def test_advice_names_flags_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["store", "--jsno"]) == 2
    assert "did you mean --json?" in capsys.readouterr().err
