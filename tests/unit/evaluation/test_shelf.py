"""Results in other formats: what another program wrote stays, and what an earlier evaluation wrote does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb_ray.evaluate import main
from tests.unit.evaluation.test_evaluate_store import put
from tests.unit.score.episodes import bad, episode, ok

BOTH = ["--format", "tritonrl", "--format", "kernelbench"]
JUDGED = "kernelbench/level1/eval_results.json"


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    first = put(
        tmp_path / "first", episode("1_A", ok(2.0), problem_id=1), episode("5_B", ok(2.0), level=2, problem_id=5)
    )
    return [first, put(tmp_path / "second", episode("1_A", bad(), problem_id=1))]


def evaluated(store: str, results: Path, *argv: str) -> int:
    return main(["--from", store, "--results", str(results), *argv])


def names(results: Path) -> set[str]:
    return {str(path.relative_to(results)) for path in results.rglob("*.json") if not path.name.startswith(".")}


@pytest.mark.parametrize("name", [JUDGED, "kernelbench/level2/pass_at_k_results.json", "tritonrl.json"])
def test_what_another_program_wrote_is_refused_before_anything_is_written(
    stores: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    results = tmp_path / "r"
    (results / name).parent.mkdir(parents=True)
    (results / name).write_text('{"1": []}')
    assert evaluated(stores[0], results, *BOTH) == 2
    err = capsys.readouterr().err
    assert f"{name} was not written here, or was changed since: move it away" in err
    assert err.count("\n") == 1
    assert ((results / name).read_text(), names(results)) == ('{"1": []}', {name})
    assert evaluated(stores[0], results) == 0


def test_our_own_is_written_again_until_somebody_changes_it(stores: list[str], tmp_path: Path) -> None:
    results = tmp_path / "r"
    for store in (stores[0], stores[0], stores[1]):
        assert evaluated(store, results, *BOTH) == 0
    assert json.loads((results / JUDGED).read_text())["1"][0]["correctness"] is False
    (results / JUDGED).write_text("{}")
    assert evaluated(stores[1], results, *BOTH) == 2


def test_nothing_of_an_earlier_evaluation_is_left(
    stores: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "r"
    assert evaluated(stores[0], results, *BOTH) == 0
    assert "removed" not in capsys.readouterr().out
    for more in ((), ("--gpu-hour-price", "2")):
        assert evaluated(stores[0], results, *more) == 0
        assert {JUDGED, "tritonrl.json"} <= names(results)
    (results / JUDGED).write_text("changed")
    assert evaluated(stores[1], results) == 0
    assert f"removed:   {results}/tritonrl.json: of an earlier evaluation" in capsys.readouterr().out
    assert names(results) == {"metrics.json", JUDGED}
