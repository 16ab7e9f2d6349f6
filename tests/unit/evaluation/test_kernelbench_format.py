"""`--format kernelbench` with nothing to tell: said before a run, and else after everything that can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.evaluate import main
from kb_ray.evaluation.answering import Selection
from kb_ray.evaluation.options import parse
from kb_ray.records import Episode, StopReason
from tests.unit.evaluation.test_evaluate_store import put
from tests.unit.score.episodes import bad, episode, ok

FORMAT = ["--format", "tritonrl", "--format", "kernelbench"]


def plan(*episodes: Episode) -> list[str]:
    kept = Selection(parse(FORMAT)[0])([(one.task, one.sample) for one in episodes])
    return [task.name for task, _ in kept]


def test_a_plan_that_its_files_could_not_hold_is_refused_before_it_is_run() -> None:
    right = episode("1_A", ok(1.0), problem_id=1)
    assert plan(right, episode("own", ok(1.0), source="folder")) == ["1_A", "own"]
    with pytest.raises(ConfigError, match="--format kernelbench: none of the planned tasks is a KernelBench problem"):
        plan(episode("own", ok(1.0), source="folder"), episode("2_B", ok(1.0)))
    with pytest.raises(ConfigError, match="kernelbench/1/1_A and kernelbench/1/1_B are both problem 1 of level 1"):
        plan(right, episode("1_B", ok(1.0), problem_id=1))


@pytest.mark.parametrize(
    ("episodes", "said"),
    [
        ([episode("1_A", stop=StopReason.INFRA_ERROR, problem_id=1)], "no judged episode is of a KernelBench problem"),
        ([episode("own", ok(1.0), source="folder")], "no judged episode is of a KernelBench problem"),
        ([episode("1_A", bad(), problem_id=1), episode("1_B", bad(), problem_id=1)], "are both problem 1 of level 1"),
    ],
)
def test_everything_else_is_written_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], episodes: list[Episode], said: str
) -> None:
    store, results = put(tmp_path / "store", *episodes), tmp_path / "results"
    board = ["--tensorboard-log-dir", str(tmp_path / "board")]
    assert main(["--from", store, "--results", str(results), *FORMAT, *board]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    told = {path.name for path in results.iterdir() if not path.name.startswith(".")}
    assert told == {"metrics.json", "report.html", "tritonrl.json"}
    assert (tmp_path / "board").is_dir()
