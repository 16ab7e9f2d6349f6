"""`evaluate --from` and `--compare` on stores: files written, tables, and every kind of store that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb_ray.evaluate import main
from kb_ray.records import Episode
from kb_ray.traces.layout import part_key
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import open_store
from tests.unit.score.episodes import bad, episode, ok

STORE = (
    episode("1_A", bad(), ok(2.0), problem_id=1),
    episode("2_B", bad(), problem_id=2),
    episode("3_C", ok(1.2), level=2, problem_id=3),
    episode("4_Z", ok(3.0), flags=["zeros_pass"], problem_id=4),
)


def put(folder: Path, *episodes: Episode) -> str:
    data = table_bytes(list(episodes))
    open_store(str(folder)).put_if_absent(part_key(data), data)
    return str(folder)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return put(tmp_path / "store", *STORE)


def test_a_store_becomes_metrics_a_table_other_formats_and_a_report(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    argv = ["--from", store, "--results", str(results), "--format", "tritonrl", "--format", "kernelbench"]
    assert main([*argv, "--gpu-hour-price", "3600", "--tensorboard-log-dir", str(tmp_path / "board")]) == 0
    metrics = json.loads((results / "metrics.json").read_text())
    assert metrics["summary"]["overall"]["best"]["correct"]["count"] == 2
    assert metrics["summary"]["flagged_tasks"] == ["kernelbench/1/4_Z"]
    # two seconds for each of the three correct kernels
    assert metrics["cost"] == pytest.approx(6.0)
    assert {row["system"] for row in metrics["published"]} >= {"TritonRL"}
    assert json.loads((results / "tritonrl.json").read_text())["num_tasks"] == 4
    assert set(json.loads((results / "kernelbench/level1/eval_results.json").read_text())) == {"1", "2", "4"}
    assert "<html" in (results / "report.html").read_text()[:2000].lower()
    out = capsys.readouterr().out
    assert "correct                    66.7 % [20.8, 93.9]" in out
    assert "fast_2 (>= 2)" in out
    assert "TritonRL" in out


def test_filters_take_their_part(store: str, tmp_path: Path) -> None:
    for argv, judged in ((["--level", "2"], 1), (["--num-tasks", "2"], 2), (["--exclude-flagged"], 3)):
        assert main(["--from", store, "--results", str(tmp_path), *argv]) == 0
        summary = json.loads((tmp_path / "metrics.json").read_text())["summary"]
        assert (summary["overall"]["judged"], summary["flagged"]) == (judged, None)


def test_two_stores_are_compared_task_by_task(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = put(tmp_path / "other", episode("1_A", bad()), episode("2_B", ok(1.5)), episode("3_C", ok(2.4), level=2))
    assert main(["--compare", store, other, "--results", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert (found["tasks"], found["gained"], found["lost"]) == (3, ["kernelbench/1/2_B"], ["kernelbench/1/1_A"])
    out = capsys.readouterr().out
    assert "gained: 1 (kernelbench/1/2_B)" in out
    assert "2.00x" in out


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    return err


def test_a_store_that_cannot_be_used_is_one_line_and_nothing_is_written(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ["--results", str(tmp_path / "results")]
    empty = str(tmp_path / "empty")
    assert empty in refused(["--from", empty, *results], capsys)
    assert "--level 4 leaves none of 4 episodes" in refused(["--from", store, "--level", "4", *results], capsys)
    flagged = put(tmp_path / "flagged", STORE[3])
    assert "--exclude-flagged leaves none" in refused(["--from", flagged, "--exclude-flagged", *results], capsys)
    stranger = put(tmp_path / "stranger", episode("9_Q", ok(1.0)))
    assert "no task in common" in refused(["--compare", store, stranger, *results], capsys)
    assert not (tmp_path / "results").exists()


def test_damaged_files_are_named_and_left_out_on_request(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(store) / "parts" / "part-20260101T000000000000Z-0000000000000000.parquet"
    broken.write_bytes(b"PAR1 half")
    argv = ["--from", store, "--results", str(tmp_path / "results")]
    assert broken.name in refused(argv, capsys)
    assert main([*argv, "--skip-corrupt"]) == 0
    assert broken.name in capsys.readouterr().err
    metrics = json.loads((tmp_path / "results" / "metrics.json").read_text())
    assert [Path(key).name for key in metrics["skipped_files"]] == [broken.name]


def test_kernelbenchs_format_needs_kernelbench_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = put(tmp_path / "own", episode("mine", ok(1.0), level=None, source="folder"))
    assert "--format kernelbench" in refused(
        ["--from", own, "--format", "kernelbench", "--results", str(tmp_path / "r")], capsys
    )
    assert (tmp_path / "r" / "metrics.json").is_file()
