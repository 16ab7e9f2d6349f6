"""Results in other projects' formats: the second document's JSON and KernelBench's run folders."""

from __future__ import annotations

import json
import math

import pytest

from kb_ray.errors import ConfigError
from kb_ray.evaluation.foreign import KernelBenchRuns, tritonrl
from kb_ray.records import Stage, Status, StopReason, Timing
from kb_ray.score.metrics import summarise
from kb_ray.score.outcomes import outcome
from tests.unit.score.episodes import NO_CODE, bad, episode, ok

STORE = [
    episode("1_Matmul", bad(), ok(2.0), problem_id=1),
    episode("1_Matmul", ok(4.0), sample=1, problem_id=1),
    episode("2_ReLU", bad(Status.COMPILE_ERROR, Stage.COMPILE), problem_id=2),
    episode("2_ReLU", ok(50.0, trusted=False, flags=["too_fast"]), sample=1, problem_id=2),
    episode("9_Fused", NO_CODE, level=2, problem_id=9),
    episode("own", ok(1.0), level=None, source="folder"),
]


def test_the_second_documents_output_has_its_fields_and_percentages() -> None:
    found = tritonrl("checkpoints/rl_final", [outcome(item) for item in STORE])
    assert found["model_path"] == "checkpoints/rl_final"
    assert found["num_tasks"] == 4
    assert found["metrics"] == {"valid_rate": 83.33, "compiled_rate": 66.67, "correct_rate": 66.67}
    rows = {row["id"]: row for row in found["detailed_results"]}
    assert rows["kernelbench/1/1_Matmul#0"] == {"id": "kernelbench/1/1_Matmul#0", "stage": "timing", "reward": 1.0}
    assert rows["kernelbench/1/2_ReLU#0"]["reward"] == 0.0
    assert rows["kernelbench/2/9_Fused#0"]["stage"] == "extract"
    json.dumps(found)


def test_one_sample_per_task_is_named_by_the_task() -> None:
    judged, failed = episode("a", ok(1.0)), episode("b", stop=StopReason.INFRA_ERROR)
    found = tritonrl("m", [outcome(judged), outcome(failed)])
    assert [row["id"] for row in found["detailed_results"]] == ["kernelbench/1/a"]


def test_kernelbenchs_files_are_by_level_and_problem() -> None:
    runs = KernelBenchRuns()
    runs.add(STORE)
    assert runs.levels == (1, 2)
    first = runs.eval_results(1)
    assert list(first) == ["1", "2"]
    assert [entry["sample_id"] for entry in first["1"]] == [0, 1]
    assert first["1"][0]["runtime"] == pytest.approx(3.0)
    assert first["1"][0]["runtime_stats"]["num_trials"] == 2
    assert (first["2"][0]["compiled"], first["2"][0]["correctness"], first["2"][0]["runtime"]) == (False, False, -1.0)
    assert runs.baseline(1) == {"level1": {"1_Matmul.py": {"mean": 6.0}, "2_ReLU.py": {"mean": 6.0}}}
    assert runs.baseline(2) == {"level2": {"9_Fused.py": {"mean": 0.0}}}
    json.dumps([first, runs.pass_at_k_results(1)])


def test_a_time_that_is_none_is_told_as_not_timed() -> None:
    odd = Timing(median_ms=1.0, trimmed_mean_ms=math.nan, std_ms=0.1, n=2, samples_ms=(1.0, math.nan))
    right = ok(2.0, trusted=False).model_copy(update={"kernel_time": odd, "reference_time": odd})
    runs = KernelBenchRuns()
    runs.add([episode("1_A", right, problem_id=1)])
    (entry,) = runs.eval_results(1)["1"]
    assert (entry["runtime"], entry["runtime_stats"]) == (-1.0, {})
    json.dumps([runs.eval_results(1), runs.baseline(1)], allow_nan=False)


def test_kernelbenchs_files_are_over_the_same_episodes_as_the_metrics() -> None:
    runs = KernelBenchRuns()
    found = [
        episode("1_Matmul", ok(2.0), problem_id=1),
        episode("1_Matmul", bad(), sample=1, problem_id=1, stop=StopReason.INFRA_ERROR),
        episode("1_Matmul", sample=2, problem_id=1, stop=StopReason.CONTEXT),
        episode("1_Matmul", sample=3, problem_id=1, stop=StopReason.MODEL_ERROR),
        episode("add_relu", ok(2.0), problem_id=1, source="builtin"),
        episode("3_Lost", bad(), problem_id=3, level=3, stop=StopReason.INFRA_ERROR),
    ]
    runs.add(found)
    assert runs.levels == (1,)
    entries = runs.eval_results(1)
    assert [(e["sample_id"], e["correctness"]) for e in entries["1"]] == [(0, True), (1, False)]
    assert entries["1"][1]["metadata"] == {"status": "context_exhausted"}
    passing = runs.pass_at_k_results(1)["metadata"]
    judged = summarise(found[:4]).overall
    assert (passing["total_evaluated_samples"], passing["total_correct_samples"]) == (2, 1)
    assert (judged.best.correct.n, judged.best.correct.count) == (2, 1)


def test_two_tasks_that_are_one_problem_are_refused() -> None:
    runs = KernelBenchRuns()
    with pytest.raises(ConfigError, match="kernelbench/1/1_A and kernelbench/1/1_B are both problem 1 of level 1"):
        runs.add([episode("1_A", ok(1.0), problem_id=1), episode("1_B", ok(1.0), problem_id=1)])


def test_a_speed_that_cannot_be_trusted_is_not_told_as_a_right_kernel() -> None:
    runs = KernelBenchRuns()
    runs.add(STORE)
    doubtful = runs.eval_results(1)["2"][1]
    assert (doubtful["compiled"], doubtful["correctness"]) == (True, False)
    assert doubtful["metadata"]["untrusted"] == ["too_fast"]


def test_pass_at_k_results_are_averaged_over_problems() -> None:
    runs = KernelBenchRuns()
    runs.add(STORE)
    found = runs.pass_at_k_results(1)
    assert found["problems"]["1"] == {"total_samples": 2, "correct_samples": 2, "pass@1": 1.0, "pass@2": 1.0}
    assert found["averages"] == {"avg_pass@1": 0.5, "avg_pass@2": 0.5}
    assert found["metadata"]["total_correct_samples"] == 2


def test_a_sample_that_we_failed_leaves_the_next_judged_one_to_be_looked_at() -> None:
    """KernelBench's analysis takes sample 0 of each problem: its shares are then ours, over judged answers."""
    found = [
        episode("1_A", stop=StopReason.INFRA_ERROR, problem_id=1),
        episode("1_A", ok(2.0), sample=1, problem_id=1),
        episode("2_B", bad(), problem_id=2),
        episode("3_C", stop=StopReason.INFRA_ERROR, problem_id=3),
    ]
    runs = KernelBenchRuns()
    runs.add(found)
    entries, references = runs.eval_results(1), runs.baseline(1)["level1"]
    assert [[entry["sample_id"] for entry in problem] for problem in entries.values()] == [[0], [0]]
    assert set(references) == {"1_A.py", "2_B.py"}
    theirs = [
        problem[0]["correctness"] and references[name]["mean"] / problem[0]["runtime"] > 1.0
        for problem, name in zip(entries.values(), references, strict=True)
    ]
    ours = next(item.share for item in summarise(found).overall.best.fast_p if item.p == 1.0)
    assert sum(theirs) / len(theirs) == ours.value == 0.5


@pytest.mark.parametrize("speedup", [1.02, 0.98, 1.5, 1.3, 3.0])
def test_a_few_slow_calls_do_not_turn_their_quotient_against_our_speedup(speedup: float) -> None:
    """Our speedup is of medians, their runtimes are means: of a third of slow calls these are a tenth apart."""
    skewed = Timing(median_ms=1.0, trimmed_mean_ms=1.0667, std_ms=0.1, n=3, samples_ms=(1.0, 1.0, 1.2))
    right = ok(speedup).model_copy(update={"kernel_time": skewed})
    other = ok(2 * speedup).model_copy(update={"kernel_time": skewed})
    runs = KernelBenchRuns()
    found = [episode("1_A", right, problem_id=1), episode("1_A", other, sample=1, problem_id=1)]
    runs.add(found[::-1])
    entry = runs.eval_results(1)["1"][0]
    assert entry["runtime"] == entry["runtime_stats"]["mean"] == 1.0667
    theirs = runs.baseline(1)["level1"]["1_A.py"]["mean"] / entry["runtime"]
    assert theirs == pytest.approx(speedup, rel=1e-12)
    assert [theirs > p for p in (1.0, 1.5, 3.0)] == [speedup > p for p in (1.0, 1.5, 3.0)]


def test_numbers_that_training_gave_begin_with_0_for_each_problem() -> None:
    runs = KernelBenchRuns()
    runs.add(
        episode(name, verdict, sample=sample, problem_id=number)
        for name, number, sample, verdict in (("1_A", 1, 5, bad()), ("1_A", 1, 4, ok(2.0)), ("2_B", 2, 6, bad()))
    )
    told = {key: [(e["sample_id"], e["correctness"]) for e in held] for key, held in runs.eval_results(1).items()}
    assert told == {"1": [(0, True), (1, False)], "2": [(0, False)]}


def test_a_problem_with_a_right_kernel_that_was_not_timed_has_no_baseline() -> None:
    """Its runtime is -1 there: beside a reference's time that would be a speedup below 0."""
    runs = KernelBenchRuns()
    runs.add(
        [
            episode("1_A", ok(None), problem_id=1),
            episode("1_A", ok(2.0), sample=1, problem_id=1),
            episode("2_B", bad(device="cpu"), problem_id=2),
            episode("2_B", ok(2.0), sample=1, problem_id=2),
        ]
    )
    assert runs.baseline(1) == {"level1": {"2_B.py": {"mean": 6.0}}}
    assert [entry["runtime"] for entry in runs.eval_results(1)["1"]] == [-1.0, 3.0]
