"""An evaluation through the real pool: scripted answers, files of KernelBench's generator, a real small model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_run import ANSWER, ROOT, Command, make_workload

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.5 + 1.0


def get_inputs():
    return [torch.rand(64, 32)]


def get_init_inputs():
    return []
"""


def evaluate(command: Command, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "kb_ray.evaluate", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, timeout=240, check=False,
        env={**os.environ, **command.env},
    )  # fmt: skip
    return done.returncode, done.stdout


def overall(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "metrics.json").read_text())["summary"]["overall"]
    return found


def test_every_metric_of_a_real_run_is_what_one_counts_by_hand(command: Command, tmp_path: Path) -> None:
    """Four tasks, two samples each: three are wrong and then right, one is never right."""
    workload, output = make_workload(tmp_path, 3), tmp_path / "out"
    (workload.tasks / "never.py").write_text((workload.tasks / "t00.py").read_text())
    wrong = {"task": "folder/never", "turns": ["no code here", ANSWER.format(factor="9.0", shift="9.0")]}
    with workload.script.open("a") as script:
        script.write(json.dumps(wrong) + "\n")
    arguments = [*workload.arguments(str(output)), "--max-turns", "2", "--samples", "2"]
    code, out = evaluate(command, *arguments)
    assert code == 0, out
    found = overall(output / "evaluation")
    assert (found["episodes"], found["judged"], found["tasks"], found["samples"]) == (8, 8, 4, 2)
    counts = {
        name: (found["best"][name]["count"], found["best"][name]["n"]) for name in ("valid", "correct", "trusted")
    }
    assert counts == {"valid": (8, 8), "correct": (6, 8), "trusted": (0, 8)}
    assert [item["estimate"]["value"] for item in found["pass_at_k"]] == [0.75, 0.75]
    assert found["best"]["fast_p"][0]["share"]["value"] == 0.75
    assert found["best"]["fast_p"][3]["share"]["value"] is None
    assert found["turns_used"]["value"] == found["turns_to_success"]["value"] == 2.0
    assert (found["format"]["count"], found["format"]["n"]) == (14, 16)
    first, second = found["turns"]
    assert first["statuses"] == {"mismatch": 6, "no_code": 2}
    assert second["statuses"] == {"ok": 6, "mismatch": 2}
    assert (first["solved_by"]["count"], second["solved_by"]["count"]) == (0, 6)
    assert found["costs"]["tokens_per_correct"]["value"] == pytest.approx(found["costs"]["tokens"] / 6)
    assert (output / "evaluation" / "report.html").is_file()
    code, out = evaluate(command, *arguments)
    assert code == 0, out
    assert "nothing to do" in out
    assert overall(output / "evaluation") == found


def test_files_of_kernelbenchs_generator_are_judged(command: Command, tmp_path: Path) -> None:
    problems, kernels = tmp_path / "KernelBench" / "KernelBench" / "level1", tmp_path / "runs" / "mine"
    problems.mkdir(parents=True)
    kernels.mkdir(parents=True)
    for name in ("1_Scale", "2_Scale_again", "3_Without_files"):
        (problems / f"{name}.py").write_text(PROBLEM)
    code = ANSWER.partition("```python\n")[2].rpartition("```")[0]
    (kernels / "level_1_problem_1_sample_0_kernel.py").write_text(code.format(factor="2.5", shift="1.0"))
    (kernels / "level_1_problem_1_sample_1_kernel.py").write_text(code.format(factor="2.5", shift="7.0"))
    (kernels / "level_1_problem_2_sample_1_kernel.py").write_text(code.format(factor="2.5", shift="1.0"))
    output = tmp_path / "out"
    code_, out = evaluate(
        command, "--samples-dir", str(kernels), "--kernelbench-root", str(tmp_path / "KernelBench"),
        "--output", str(output), "--n-correctness", "2", "--bench-workers", "1", "--format", "kernelbench",
    )  # fmt: skip
    assert code_ == 0, out
    found = json.loads((output / "evaluation/kernelbench/level1/eval_results.json").read_text())
    told = {problem: [(e["sample_id"], e["correctness"]) for e in entries] for problem, entries in found.items()}
    assert told == {"1": [(0, True), (1, False)], "2": [(0, False), (1, True)]}
    assert overall(output / "evaluation")["turns"][0]["statuses"] == {"ok": 2, "mismatch": 1, "no_code": 1}


def test_a_checkpoint_answers_within_the_process(command: Command, tmp_path: Path, smollm2_folder: Path) -> None:
    workload, output = make_workload(tmp_path, 2), tmp_path / "out"
    prompt = tmp_path / "short.md"
    prompt.write_text("<!-- user -->\nRewrite with Triton: $reference\n")
    code, out = evaluate(
        command, "--tasks", f"folder:{workload.tasks}", f"model_path={smollm2_folder}", "num_tasks=1",
        "--prompt", str(prompt),
        "--max-tokens", "16", "--output", str(output), "--bench-workers", "1", "--format", "tritonrl",
    )  # fmt: skip
    assert code == 0, out
    found = json.loads((output / "evaluation" / "tritonrl.json").read_text())
    assert (found["model_path"], found["num_tasks"]) == (str(smollm2_folder), 1)
    assert overall(output / "evaluation")["costs"]["tokens"] == 16
