"""`evaluate --from` and `--compare` on stores: files written, tables, and every kind of store that cannot be used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kb_ray.evaluate import main
from kb_ray.evaluation.options import parse
from kb_ray.evaluation.results import evaluate_store
from kb_ray.records import Episode
from kb_ray.report import write_page
from kb_ray.reporting.packing import unpack
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


def page(results: Path) -> dict[str, Any]:
    """What the report's page holds."""
    found = re.search(r'id="content">([^<]*)</script>', (results / "report.html").read_text())
    assert found is not None
    return unpack(found[1])  # type: ignore[no-any-return]


def tasks_of(told: dict[str, Any]) -> list[str]:
    return [task.rpartition("/")[2] for task in told["tasks"]["task"]]


@pytest.mark.parametrize(
    ("argv", "tasks"),
    [
        ([], ["1_A", "2_B", "4_Z", "3_C"]),
        (["--level", "2"], ["3_C"]),
        (["--num-tasks", "2"], ["1_A", "2_B"]),
        (["--exclude-flagged"], ["1_A", "2_B", "3_C"]),
    ],
)
def test_the_page_shows_what_was_evaluated(store: str, tmp_path: Path, argv: list[str], tasks: list[str]) -> None:
    assert main(["--from", store, "--results", str(tmp_path), *argv]) == 0
    told, metrics = page(tmp_path), json.loads((tmp_path / "metrics.json").read_text())
    assert tasks_of(told) == tasks
    assert sorted(row["task"].rpartition("/")[2] for row in told["index"]) == sorted(tasks)
    assert told["scopes"][0]["metrics"]["judged"] == metrics["summary"]["overall"]["judged"]
    assert told["scopes"][0]["metrics"]["best"] == metrics["summary"]["overall"]["best"]


def test_of_a_run_the_page_shows_the_samples_that_were_planned(store: str, tmp_path: Path) -> None:
    put(Path(store), episode("1_A", bad(), sample=1, problem_id=1))
    options, _ = parse(["--from", store])
    found = evaluate_store(open_store(store), options, lambda task, sample: sample == 0 and task.endswith("A"))
    write_page(found.found, tmp_path / "report.html", summary=found.results.summary)
    assert (tasks_of(page(tmp_path)), page(tmp_path)["episodes"]) == (["1_A"], 1)


def test_excluded_tasks_are_in_no_file_and_no_number(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--from", store, "--results", str(tmp_path), "--format", "tritonrl", "--format", "kernelbench"]
    assert main([*argv, "--gpu-hour-price", "3600", "--exclude-flagged"]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    triton = json.loads((tmp_path / "tritonrl.json").read_text())
    assert (triton["num_tasks"], triton["metrics"]["correct_rate"]) == (3, 66.67)
    assert set(json.loads((tmp_path / "kernelbench/level1/eval_results.json").read_text())) == {"1", "2"}
    assert set(json.loads((tmp_path / "kernelbench/level1/baseline.json").read_text())["level1"]) == {
        "1_A.py", "2_B.py",
    }  # fmt: skip
    # two seconds for each of the two correct kernels of tasks that are not flagged
    assert metrics["cost"] == pytest.approx(4.0)
    assert metrics["cost"] == pytest.approx(metrics["summary"]["overall"]["costs"]["gpu_s"])
    assert metrics["summary"]["flagged_tasks"] == ["kernelbench/1/4_Z"]
    assert {row["tasks"] for row in metrics["published"] if row["level"] == 1} == {2}
    assert "4_Z" in capsys.readouterr().out


def test_earlier_attempts_are_in_no_number_and_that_is_said(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(Path(store), episode("1_A", ok(1.5), problem_id=1).model_copy(update={"attempt": 2}))
    assert main(["--from", store, "--results", str(tmp_path), "--gpu-hour-price", "3600"]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["superseded"], metrics["cost"]) == (1, pytest.approx(6.0))
    assert "1 rows of other attempts are not counted" in capsys.readouterr().out
    assert page(tmp_path)["scopes"][-1]["metrics"]["costs"]["gpu_s"] == pytest.approx(6.0)


def test_the_first_tasks_are_the_same_in_both_stores_whatever_ended_first(tmp_path: Path) -> None:
    names = ("1_A", "2_B", "10_C", "11_D")
    one = put(tmp_path / "one", *(episode(name, ok(1.0)) for name in names))
    two = put(tmp_path / "two", *(episode(name, ok(2.0)) for name in reversed(names)), episode("0_E", ok(1.0)))
    assert main(["--compare", one, two, "--num-tasks", "3", "--results", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert (found["tasks"], found["only_first"], found["only_second"]) == (3, 0, 0)
    assert main(["--from", two, "--num-tasks", "4", "--results", str(tmp_path)]) == 0
    assert set(tasks_of(page(tmp_path))) == {"0_E", "1_A", "2_B", "10_C"}


def test_flagged_tasks_are_compared_apart(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # only the first store shows that 4_Z is flagged
    other = put(tmp_path / "other", episode("1_A", ok(2.0)), episode("4_Z", bad()))
    argv = ["--compare", store, other, "--results", str(tmp_path)]
    assert main(argv) == 0
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert (found["tasks"], found["lost"], found["flagged"]["lost"]) == (1, [], ["kernelbench/1/4_Z"])
    assert "flagged tasks, not in what stands above" in capsys.readouterr().out
    assert main([*argv, "--exclude-flagged"]) == 0
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert (found["tasks"], found["only_first"], found["only_second"], found["flagged"]) == (1, 2, 0, None)
    assert found["flagged_tasks"] == ["kernelbench/1/4_Z"]


def test_sides_that_cannot_be_compared_are_told_before_a_checkpoint_is_evaluated(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "config.json").write_text("{}")
    one = str(tmp_path / "final")
    results = ["--output", str(tmp_path / "out"), "--results", str(tmp_path / "r")]
    assert "are one and the same" in refused([f"compare={one}", f"compare={one}", *results], capsys)
    assert "are one and the same" in refused(["--compare", store, f"{store}/", "--results", str(tmp_path)], capsys)
    missing = str(tmp_path / "nowhere")
    assert "there is no such folder" in refused(["--compare", one, missing, *results], capsys)
    assert "--compare and --max-tokens" in refused(
        ["--compare", store, missing, "--max-tokens", "7", "--results", str(tmp_path / "r")], capsys
    )
    assert not (tmp_path / "out").exists()


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
