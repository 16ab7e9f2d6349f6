"""The first document's JSON: its keys in its order, its values where it has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray.exporting import seed1
from kb_ray.exporting.making import make
from kb_ray.exporting.options import ExportOptions
from kb_ray.records import Episode, StopReason, Task
from kb_ray.traces.reading import survey
from kb_ray.traces.run import RunInfo
from tests.unit.exporting.stories import store_of, story, task

MULTI = ["sample_key", "source", "level", "name", "problem_id", "pytorch_code", "num_turns", "stop_reason",
         "final_triton_code", "final_result", "turns", "full_messages", "timestamp"]  # fmt: skip
SINGLE = ["sample_key", "source", "level", "name", "problem_id", "pytorch_code", "reasoning", "triton_code",
          "full_completion", "result", "timestamp"]  # fmt: skip
TURN = ["turn", "reasoning", "triton_code", "full_completion", "result", "feedback_given"]
MEASURED = ["kernel_name", "timestamp", "correctness", "speedup", "reference_time_ms", "kernel_time_ms", "fast_0",
            "fast_1", "fast_2", "error"]  # fmt: skip
RESULT = ["correctness", "speedup", "fast_0", "fast_1", "fast_2", "error"]


def written(
    folder: Path, *episodes: Episode, multi_turn: bool | None = None, training: dict[str, Any] | None = None
) -> tuple[str, list[dict[str, Any]]]:
    store = store_of(folder / "store", *episodes)
    if multi_turn is not None or training is not None:
        config = {"multi_turn": multi_turn} if training is None else training
        identity = {} if training is None else {"command": "train", "model_name": "m"}
        info = RunInfo(run_id="r", fingerprint="f", identity=identity, config=config, versions={}, created_at="t")
        store.put_if_absent("run.json", info.model_dump_json().encode())
    made = make(survey(store), ExportOptions("seed1"), folder / "out", command="c")
    [path] = made.folder.glob("*.json")
    records: list[dict[str, Any]] = json.loads(path.read_text())
    assert len(records) == made.rows
    assert path.read_text() == json.dumps(records, indent=2)
    return path.name, records


def test_a_multi_turn_record_has_every_key_in_order(tmp_path: Path) -> None:
    told = story("wrong", "broken", "slow", "fast", of=task("19_ReLU", source="kernelbench", number=19))
    name, [record] = written(tmp_path, told, multi_turn=True)
    assert name == "reasoning_traces_multiturn.json"
    assert list(record) == MULTI
    assert (record["sample_key"], record["level"], record["problem_id"]) == ("kernelbench_19", 1, 19)
    assert (record["num_turns"], record["stop_reason"]) == (4, "success_fast")
    assert [turn["turn"] for turn in record["turns"]] == [1, 2, 3, 4]
    for turn in record["turns"]:
        assert list(turn) == TURN
        assert list(turn["result"]) == MEASURED
    assert record["final_result"] == record["turns"][-1]["result"]
    assert record["final_triton_code"] == told.turns[-1].triton_code
    assert [m["role"] for m in record["full_messages"]] == ["system", *["user", "assistant"] * 3, "user"]
    assert all(list(m) == ["role", "content"] for m in record["full_messages"])


def test_results_are_numbers_and_errors_are_what_was_raised(tmp_path: Path) -> None:
    _, [record] = written(tmp_path, story("wrong", "broken", "slow", "fast"))
    told = [(t["result"]["correctness"], t["result"]["speedup"], t["result"]["error"]) for t in record["turns"]]
    assert told == [
        (False, 0.0, None),
        (False, 0.0, "COMPILATION ERROR: broken at line 3"),
        (True, 0.5, None),
        (True, 3.0, None),
    ]
    assert [turn["feedback_given"] is None for turn in record["turns"]] == [False, False, False, True]
    fast = record["final_result"]
    assert (fast["fast_0"], fast["fast_1"], fast["fast_2"]) == (True, True, True)
    assert (fast["reference_time_ms"], fast["kernel_time_ms"]) == (1.0, pytest.approx(1 / 3))


def test_the_final_turn_is_the_last_one_though_another_was_better(tmp_path: Path) -> None:
    _, [record] = written(tmp_path, story("fast", "wrong", stop=StopReason.MAX_TURNS))
    assert record["final_result"]["correctness"] is False
    assert record["stop_reason"] == "max_turns_reached"


def test_a_single_turn_run_gives_single_turn_records(tmp_path: Path) -> None:
    name, [right, empty] = written(tmp_path, story("fast"), story("blank", of=task("exp")), multi_turn=False)
    assert name == "reasoning_traces.json"
    assert list(right) == SINGLE
    assert list(right["result"]) == RESULT
    assert right["reasoning"] == "thought 0"
    assert list(empty) == ["sample_key", "error", "full_completion", "model_reasoning"]
    assert empty["error"] == "Triton extraction failed"


def test_a_turn_without_code_has_the_words_of_the_multi_turn_program(tmp_path: Path) -> None:
    _, [record] = written(tmp_path, story("blank", "fast"), multi_turn=True)
    assert record["turns"][0]["result"]["error"] == "Triton code extraction failed"


@pytest.mark.parametrize(
    ("config", "name"),
    [({"mode": "single_turn"}, "reasoning_traces.json"), ({"mode": "multi_turn"}, "reasoning_traces_multiturn.json"),
     ({"keep": 3}, "reasoning_traces.json")],
)  # fmt: skip
def test_a_training_run_is_of_as_many_turns_as_it_was_trained_on(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    assert written(tmp_path, story("fast"), training=config)[0] == name


def test_kernelbook_rows_have_their_index_and_no_name(tmp_path: Path) -> None:
    of = Task(task_id="kernelbook/1174", source="kernelbook", level=2, name="Net", reference_code="x", style="module",
              entry_point="Net")  # fmt: skip
    _, [record] = written(tmp_path, story("fast", of=of))
    assert record["sample_key"] == "kernelbook_1174"
    assert (record["level"], record["name"], record["problem_id"]) == (None, None, None)


def test_keys_of_further_samples_and_of_other_sources_differ() -> None:
    assert seed1.sample_key(task("19_ReLU", source="kernelbench", number=19), 2) == "kernelbench_19_s2"
    assert seed1.sample_key(task("relu"), 0) == "builtin_relu"


def test_keys_that_two_episodes_would_share_are_whole_task_ids(tmp_path: Path) -> None:
    def problem(level: int, sample: int = 0) -> Episode:
        of = task(f"{level}/19_ReLU", source="kernelbench", level=level, number=19)
        return story("fast", of=of, sample=sample)

    twin = story("fast", of=task("a_s1", source="folder"))
    other = story("fast", of=task("a", source="folder"), sample=1)
    _, records = written(tmp_path, problem(1), problem(2), problem(2, sample=1), story("fast"), twin, other)
    assert sorted(record["sample_key"] for record in records) == [
        "builtin_relu", "folder/a#1", "folder/a_s1#0", "kernelbench/1/19_ReLU#0", "kernelbench/2/19_ReLU#0",
        "kernelbench_19_s1",
    ]  # fmt: skip


def test_an_episode_without_an_answer_is_left_out(tmp_path: Path) -> None:
    told = [story("fast"), story(of=task("exp"), stop=StopReason.MODEL_ERROR)]
    assert len(written(tmp_path, *told)[1]) == 1


def test_what_cannot_be_said_there_is_said_in_our_words(tmp_path: Path) -> None:
    _, [record] = written(tmp_path, story("cpu", stop=StopReason.SUCCESS_UNTIMED))
    assert record["stop_reason"] == "success_untimed"
    assert record["final_result"]["fast_1"] is False
