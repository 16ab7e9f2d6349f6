"""A run that leaves out flagged tasks asks its verifiers about each before a model is asked."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fixtures_run import ANSWER, Command, check_exactly_once, make_workload, rows_by_task

CONSTANT = """import torch

input_shapes = {"x": {"shape": [64, 32], "dtype": "float32"}}


def reference_impl(x):
    return torch.zeros_like(x)
"""


def test_flagged_tasks_are_left_out_and_the_others_run_once(command: Command, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 3), str(tmp_path / "out")
    (workload.tasks / "zeros.py").write_text(CONSTANT)
    with workload.script.open("a") as script:
        script.write(json.dumps({"task": "folder/zeros", "turns": [ANSWER.format(factor="0", shift="0.0")]}) + "\n")
    arguments = workload.arguments(output, "--exclude-flagged")
    code, out = command.run(arguments)
    assert code == 0, out
    check_exactly_once(output, workload)
    assert "folder/zeros: left out, it is flagged zeros_pass" in out
    assert "left out:  1 tasks" in out
    code, out = command.run(workload.arguments(output))
    assert code == 0, out
    assert set(rows_by_task(output)) == {*workload.task_ids, "folder/zeros"}
