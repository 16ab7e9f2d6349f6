"""The first document's four turns, end to end: wrong, out of bounds, correct in two launches, fused.

On a CPU nothing is timed, so that the episode ends at the third turn as success_untimed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.records import Episode, Stage, Status, StopReason
from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from tests.fixtures_run import Command

ARGUMENTS = ["--tasks", "builtin:1", "--model", "scripted", "--multi-turn", "--timeout", "15", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(command: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(output folder, what was printed) of a run over the built-in tasks of level 1."""
    output = str(tmp_path_factory.mktemp("traces") / "out")
    code, out = command.run([*ARGUMENTS, "--output", output])
    assert code == 0, out
    return output, out


@pytest.fixture(scope="module")
def add_relu(run: tuple[str, str]) -> Episode:
    return next(e for e in episodes(open_store(run[0])) if e.task.task_id == "builtin/1/add_relu")


def test_each_turn_gets_the_verdict_that_it_deserves(add_relu: Episode) -> None:
    verdicts = [(turn.verdict.status, turn.verdict.stage) for turn in add_relu.turns]
    assert verdicts == [
        (Status.MISMATCH, Stage.TINY),
        (Status.ILLEGAL_ACCESS, Stage.TINY),
        (Status.OK, Stage.FULL),
    ]
    assert add_relu.stop_reason is StopReason.SUCCESS_UNTIMED
    assert add_relu.best_turn == 2


def test_feedback_tells_what_failed_and_is_what_the_model_is_shown(add_relu: Episode) -> None:
    wrong, outside, right = (turn.feedback_given for turn in add_relu.turns)
    assert wrong is not None
    assert "CORRECTNESS ERROR" in wrong
    assert "expected" in wrong
    assert outside is not None
    assert "MEMORY ERROR" in outside
    assert right is None
    roles = [message.role for message in add_relu.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert [m.content for m in add_relu.messages if m.role == "user"][1:] == [wrong, outside]


def test_the_correct_turn_used_two_launches_a_call(add_relu: Episode) -> None:
    evidence = add_relu.turns[2].verdict.evidence
    assert len(evidence.kernels) == 2
    assert evidence.kernel_launches == 2 * add_relu.turns[2].verdict.tests_total


def test_the_summary_says_how_it_went_and_how_to_read_the_traces(run: tuple[str, str]) -> None:
    output, printed = run
    assert "success_untimed" in printed
    assert f"data_files='{output}/parts/*.parquet'" in printed


def test_datasets_reads_the_traces_with_the_line_that_is_printed(
    run: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    line = next(part for part in run[1].splitlines() if "load_dataset" in part)
    expression = line[line.index("datasets.") :]
    rows = eval(expression, {"datasets": datasets})
    assert len(rows) == len(list(episodes(open_store(run[0]))))
    assert {"episode_id", "turns", "messages", "final_triton_code"} <= set(rows.column_names)


def test_a_second_run_does_nothing_and_says_so(command: Command, run: tuple[str, str]) -> None:
    before = sorted(p.name for p in Path(run[0]).rglob("*"))
    code, out = command.run([*ARGUMENTS, "--output", run[0]])
    assert code == 0
    assert "nothing to do" in out
    assert sorted(p.name for p in Path(run[0]).rglob("*")) == before
