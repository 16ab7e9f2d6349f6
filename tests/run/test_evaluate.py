"""An evaluation through the real pool: scripted answers, files of KernelBench's generator, a real small model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kb_ray.model.builtin_script import builtin_script
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


def test_metrics_of_built_in_tasks_are_those_worked_out_by_hand(command: Command, tmp_path: Path) -> None:
    """Two turns, two samples, the script's answers: embedding_sum is right at once, momentum_update at its second
    turn; linear_bias_gelu and masked_mean are wrong twice."""
    output = tmp_path / "out"
    code, out = evaluate(
        command, "--tasks", "builtin:2", "--num-tasks", "4", "--model", "scripted", "--multi-turn", "--max-turns", "2",
        "--samples", "2", "--output", str(output), "--n-correctness", "2", "--bench-workers", "1",
        "--gpu-hour-price", "3", "--format", "tritonrl",
    )  # fmt: skip
    assert code == 0, out
    metrics = json.loads((output / "evaluation" / "metrics.json").read_text())
    summary, found = metrics["summary"], metrics["summary"]["overall"]
    assert (metrics["published"], metrics["gpu_hours"], metrics["cost"]) == ([], 0.0, 0.0)
    assert (summary["timed"], summary["flagged"], summary["everything"], summary["flagged_tasks"]) == (
        False, None, None, [],
    )  # fmt: skip
    assert summary["by_level"] == {"2": found}
    assert summary["by_source"] == {"builtin": found}
    assert (found["episodes"], found["judged"], found["tasks"], found["samples"]) == (8, 8, 4, 2)
    # the best and the last turn of every episode are of the same kind
    for answer in (found["best"], found["last"]):
        check_answers(answer, correct=4, of=8, fast_0=0.5)
    # Wilson of 4 of 8: (0.5 + 0.2401 +- 1.96 * 0.2151) / 1.4802
    assert (found["success"]["low"], found["success"]["high"]) == pytest.approx((0.2152, 0.7848), abs=1e-4)
    assert (found["success"]["count"], found["success"]["n"]) == (4, 8)
    assert [(item["k"], item["estimate"]["value"], item["tasks"]) for item in found["pass_at_k"]] == [
        (1, 0.5, 4), (2, 0.5, 4),
    ]  # fmt: skip
    assert found["turns_used"]["value"] == (1 + 2 + 2 + 2) / 4
    assert found["turns_to_success"]["value"] == (1 + 2) / 2
    shares = {name: (found[name]["count"], found[name]["n"]) for name in ("format", "hack", "infra", "model_error")}
    assert shares == {"format": (14, 14), "hack": (0, 14), "infra": (0, 8), "model_error": (0, 8)}
    assert found["statuses"] == {"mismatch": 10, "ok": 4}
    assert found["stop_reasons"] == {"max_turns_reached": 4, "success_untimed": 4}
    assert found["curve"] == []
    first, second = found["turns"]
    check_answers(first["answers"], correct=2, of=8, fast_0=0.25)
    # only three tasks reached it, and one of them is solved then
    check_answers(second["answers"], correct=2, of=6, fast_0=1 / 3)
    assert [(turn["turn"], turn["solved_by"]["count"], turn["solved_by"]["n"]) for turn in (first, second)] == [
        (1, 2, 8), (2, 4, 8),
    ]  # fmt: skip
    assert [(turn["statuses"], turn["hack"]["count"], turn["format"]["value"]) for turn in (first, second)] == [
        ({"mismatch": 6, "ok": 2}, 0, 1.0), ({"mismatch": 4, "ok": 2}, 0, 1.0),
    ]  # fmt: skip
    costs = found["costs"]
    # the script counts words as tokens; both samples get the same answers
    turns = {"embedding_sum": 1, "linear_bias_gelu": 2, "masked_mean": 2, "momentum_update": 2}
    lines = {line.task.rpartition("/")[2]: line for line in builtin_script()}
    words = 2 * sum(len(text.split()) for name, count in turns.items() for text in lines[name].turns[:count])
    assert (costs["tokens"], costs["correct"], costs["gpu_s"]) == (words, 4, 0.0)
    assert costs["tokens_per_correct"]["value"] == pytest.approx(words / 4)
    assert costs["gpu_s_per_correct"]["value"] is None
    assert costs["prompt_tokens"] > 0
    assert costs["model_s"] >= 14 * 0.01
    rates = json.loads((output / "evaluation" / "tritonrl.json").read_text())["metrics"]
    assert rates == {"valid_rate": 100.0, "compiled_rate": 100.0, "correct_rate": 50.0}


def check_answers(found: dict[str, Any], *, correct: int, of: int, fast_0: float) -> None:
    """All run; `correct` of them are right; nothing is known of their speed, so nothing is trusted."""
    counts = {name: (found[name]["count"], found[name]["n"]) for name in ("valid", "compiled", "correct", "trusted")}
    assert counts == {"valid": (of, of), "compiled": (of, of), "correct": (correct, of), "trusted": (0, of)}
    assert found["correct"]["value"] == pytest.approx(correct / of)
    assert [(item["p"], item["share"]["value"]) for item in found["fast_p"]] == [
        (0.0, pytest.approx(fast_0)), *((p, None) for p in (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)),
    ]  # fmt: skip
    for name in ("fast_2_at_least", "speedup_mean", "speedup_median", "speedup_geomean"):
        assert found[name]["value"] is None


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
