"""Episodes that were tried again: what counts in metrics, in KernelBench's files, on the page; what training sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb_ray.evaluate import main
from kb_ray.evaluation.attempts import counted
from kb_ray.records import Episode, StopReason, Verdict
from kb_ray.report import main as report
from kb_ray.reporting.packing import unpack
from kb_ray.traces.layout import part_key
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.run import RunInfo
from kb_ray.traces.schema import table_bytes, table_of
from kb_ray.traces.store import LocalStore, Store, open_store
from tests.unit.score.episodes import bad, episode, ok


def attempt(number: int, *verdicts: Verdict, name: str = "1_A", stop: StopReason = StopReason.MAX_TURNS) -> Episode:
    return episode(name, *verdicts, stop=stop, problem_id=1).model_copy(update={"attempt": number})


def put(folder: Path, *parts: list[Episode]) -> Store:
    store = open_store(str(folder))
    for part in parts:
        data = table_bytes(part)
        store.put_if_absent(part_key(data), data)
    return store


LOST = attempt(2, stop=StopReason.INFRA_ERROR)


@pytest.mark.parametrize(
    ("attempts", "counts", "again"),
    [
        ([attempt(1, bad())], 1, 0),
        ([attempt(1, bad()), LOST], 1, 1),
        ([attempt(1, bad()), attempt(2, ok(2.0))], 1, 1),
        ([attempt(2, ok(2.0)), attempt(1, bad())], 1, 1),
        ([attempt(1, bad(), stop=StopReason.MODEL_ERROR), attempt(2, ok(2.0)), attempt(3, bad())], 2, 1),
        ([attempt(1, stop=StopReason.MODEL_ERROR), LOST], 2, 1),
        ([attempt(1, bad()), attempt(1, bad())], 1, 0),
    ],
)
def test_the_first_judged_attempt_counts_or_the_last_where_none_was(
    tmp_path: Path, attempts: list[Episode], counts: int, again: int
) -> None:
    others = [episode("2_B", ok(1.0)), episode("1_A", ok(1.0), sample=1)]
    for folder, parts in (("one", [[*attempts, *others]]), ("many", [[one] for one in (*attempts, *others)])):
        found = counted(survey(put(tmp_path / folder, *parts)))
        held = {(one.task.name, one.sample): one.attempt for one in read_episodes(found.found)}
        assert held == {("1_A", 0): counts, ("2_B", 0): 1, ("1_A", 1): 1}
        assert len(found.retried) == again


def test_a_row_that_is_no_episode_does_not_count_though_its_columns_say_so(tmp_path: Path) -> None:
    from kb_ray.traces.schema import encode

    table = table_of([attempt(1, bad()), attempt(2, ok(2.0))])
    rows = table.to_pylist()
    rows[0]["turns"][0]["verdict"]["status"] = "splendid"
    data = encode(type(table).from_pylist(rows, schema=table.schema))
    store = LocalStore(str(tmp_path))
    store.put_if_absent(part_key(data), data)
    store.put_if_absent(part_key(again := table_bytes([attempt(3, bad())])), again)
    found = counted(survey(store, skip_corrupt=True)).found
    assert [one.attempt for one in read_episodes(found)] == [2]


def test_metrics_lose_no_wrong_answer_and_say_how_many_were_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [attempt(1, bad())], [LOST], [attempt(1, bad(), name="2_B"), attempt(2, ok(2.0), name="2_B")]
    store = put(tmp_path / "store", *parts, [episode("3_C", ok(2.0))])
    assert main(["--from", store.uri, "--results", str(tmp_path / "r")]) == 0
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    overall = metrics["summary"]["overall"]
    assert (overall["judged"], overall["best"]["correct"]["count"], metrics["retried"]) == (3, 1, 2)
    assert overall["pass_at_k"][0]["estimate"]["value"] == pytest.approx(1 / 3)
    said = "Tried more than once: 2 episodes. The first judged attempt of each counts."
    assert said in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert report([store.uri, "--output", str(page)]) == 0
    told = unpack(page.read_text().partition('id="content">')[2].partition("<")[0])
    assert told["notes"] == [said]
    assert told["scopes"][0]["metrics"]["best"]["correct"]["count"] == 1


def test_numbers_of_a_training_runs_store_are_said_to_pool_policies_and_name_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = put(tmp_path / "store", [episode("3_C", ok(2.0))])
    info = RunInfo(
        run_id="r", fingerprint="f", identity={"model_name": "Qwen/Q", "command": "grpo"}, config={}, versions={},
        created_at="t",
    )  # fmt: skip
    store.put_if_absent("run.json", info.model_dump_json().encode())
    argv = ["--from", store.uri, "--results", str(tmp_path / "r"), "--format", "tritonrl"]
    assert main(argv) == 0
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert (metrics["model"], metrics["training"]) == ("Qwen/Q", "grpo")
    assert json.loads((tmp_path / "r" / "tritonrl.json").read_text())["model_path"] == "Qwen/Q"
    assert "pool the answers of several policies" in capsys.readouterr().out
