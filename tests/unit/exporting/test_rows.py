"""Rows of sft, rl and raw: which answers they hold, and in which form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kb_ray.exporting import preference, raw, rl, sft
from kb_ray.exporting.options import ExportOptions, Filters
from kb_ray.exporting.sieve import Sieve
from kb_ray.records import Episode, StopReason
from kb_ray.score.reward import RewardRule, reward
from kb_ray.traces.reading import survey
from kb_ray.traces.schema import SCHEMA, row_to_episode
from tests.unit.exporting.stories import store_of, story, task, verdict, with_examples

VIEWS = {"sft": sft, "rl": rl, "raw": raw, "preference": preference}


def rows_of(folder: Path, *episodes: Episode, **options: Any) -> list[dict[str, Any]]:
    chosen = ExportOptions(**options)
    found = survey(store_of(folder, *episodes))
    sieve = Sieve(chosen.filters, chosen.near_duplicates)
    return list(VIEWS[chosen.view].rows(found, chosen, sieve))


@pytest.mark.parametrize(
    ("keep", "turns"),
    [("correct", [2, 0, 1]), ("fast", [2]), ("best", [2, 0, 1, 0]), ("all", [3, 0, 1, 1])],
)
def test_sft_keeps_the_answer_asked_for(tmp_path: Path, keep: str, turns: list[int]) -> None:
    told = [
        story("wrong", "slow", "fast", "twice", of=task("relu")),
        story("cpu", of=task("exp")),
        story("broken", "hack", of=task("log")),
        story("odd", "cpu", of=task("sin")),
    ]
    rows = rows_of(tmp_path, *told, view="sft", keep=keep)
    assert [row["turn"] for row in rows] == turns


def test_sft_dialogues_end_with_the_answer_and_single_answers_leave_out_what_led_to_it(tmp_path: Path) -> None:
    told = story("wrong", "fast", "slow")
    [whole] = rows_of(tmp_path / "a", told, view="sft")
    assert [m["role"] for m in whole["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert whole["messages"][-1] == {"role": "assistant", "content": told.turns[1].completion.text}
    assert whole["messages"][3]["content"] == "The verdict was wrong."
    [last] = rows_of(tmp_path / "b", told, view="sft", conversation="last")
    assert last["messages"] == [*whole["messages"][:2], whole["messages"][-1]]


def test_sft_reasoning_is_dropped_kept_in_a_field_or_put_in_front(tmp_path: Path) -> None:
    told = story("fast")
    [field] = rows_of(tmp_path / "a", told, view="sft", reasoning="field")
    assert [m["reasoning_content"] for m in field["messages"]] == [None, None, "thought 0"]
    [inline] = rows_of(tmp_path / "b", told, view="sft", reasoning="inline")
    assert inline["messages"][-1]["content"].startswith("<think>\nthought 0\n</think>\n\nAnswer 0")
    assert not inline["messages"][1]["content"].startswith("<think>")


def test_a_programs_own_licence_stands_before_its_sources_and_after_what_the_user_says(tmp_path: Path) -> None:
    book = task("x", source="kernelbook").model_copy(update={"license": "MIT"})
    told = [story("fast", of=book), story("fast", of=task("y", source="kernelbook"))]
    for view in ("raw", "sft", "rl"):
        rows = rows_of(tmp_path / view, *told, view=view)
        assert [row["license"] for row in rows] == ["MIT", "unknown"]
    rows = rows_of(tmp_path / "said", *told, view="sft", licenses={"kernelbook": "other"})
    assert [row["license"] for row in rows] == ["other", "other"]


def test_rows_carry_source_licence_and_verdict(tmp_path: Path) -> None:
    told = [story("fast", of=task("x", source="kernelbench", number=3)), story("fast", of=task("y", source="folder"))]
    first, second = rows_of(tmp_path, *told, view="sft", licenses={"folder": "bsd-3-clause"})
    assert (first["source"], first["license"], first["problem_id"]) == ("kernelbench", "mit", 3)
    assert (second["source"], second["license"]) == ("folder", "bsd-3-clause")
    assert (first["status"], first["speedup"], first["fast_2"]) == ("ok", 3.0, True)
    assert set(first) == set(sft.schema(ExportOptions("sft")).names)


def test_rl_has_a_row_for_each_turn_with_the_very_prompt_it_was_given(tmp_path: Path) -> None:
    told = story("wrong", "broken", "fast")
    rows = rows_of(tmp_path, told, view="rl")
    assert [len(row["prompt"]) for row in rows] == [2, 4, 6]
    assert all(row["prompt_exact"] for row in rows)
    assert [row["completion"] for row in rows] == [turn.completion.text for turn in told.turns]
    assert [row["reward"] for row in rows] == [0.0, 0.0, pytest.approx(3.3)]
    assert rows[2]["verdict"]["kernel_time"]["median_ms"] == pytest.approx(1 / 3)
    assert set(rows[0]) == set(rl.schema(ExportOptions("rl")).names)


def test_rl_says_where_a_prompt_is_not_known_to_the_letter(tmp_path: Path) -> None:
    told = story("wrong", "fast")
    forgotten = told.model_copy(
        update={"turns": (told.turns[0], told.turns[1].model_copy(update={"prompt_hash": "0"}))}
    )
    rows = rows_of(tmp_path, forgotten, view="rl")
    assert [(row["prompt_exact"], len(row["prompt"])) for row in rows] == [(True, 2), (False, 4)]


@pytest.mark.parametrize(
    ("word", "plain", "untimed"),
    [("fast", 3.3, 3.3), ("slow", 0.8, 0.8), ("wrong", 0.0, 0.0), ("hack", 0.0, 0.0), ("blank", 0.0, 0.0),
     ("cpu", None, 0.3), ("odd", None, None), ("ours", None, None)],
)  # fmt: skip
def test_rewards(word: str, plain: float | None, untimed: float | None) -> None:
    assert reward(verdict(word), RewardRule()) == pytest.approx(plain)
    assert reward(verdict(word), RewardRule(allow_untimed=True)) == pytest.approx(untimed)


def test_a_flagged_task_gives_no_reward_for_an_untimed_success(tmp_path: Path) -> None:
    told = story("cpu")
    flagged = told.model_copy(update={"task": told.task.model_copy(update={"flags": ("zeros_pass",)})})
    for episode, expected in ((told, pytest.approx(0.3)), (flagged, None)):
        (row,) = rows_of(tmp_path / str(expected), episode, view="rl", allow_untimed=True)
        assert row["reward"] == expected


def test_raw_rows_are_the_stores_own_with_a_licence(tmp_path: Path) -> None:
    told = [story("wrong", "fast"), story(of=task("exp"), stop=StopReason.MODEL_ERROR)]
    rows = rows_of(tmp_path, *told, view="raw")
    assert [row["license"] for row in rows] == ["apache-2.0"] * 2
    assert [row_to_episode(row | {"license": None}) for row in rows] == told
    assert set(rows[0]) == set(SCHEMA.names)


def test_raw_asks_the_best_turn_and_drops_episodes_without_one_only_where_something_is_asked(tmp_path: Path) -> None:
    told = [story("wrong", "fast"), story("wrong", of=task("a")), story(of=task("b"), stop=StopReason.MODEL_ERROR)]
    rows = rows_of(tmp_path, *told, view="raw", filters=Filters(status=frozenset({"ok"})))
    assert [row["name"] for row in rows] == ["relu"]


def test_near_duplicates_of_any_view_are_left_out(tmp_path: Path) -> None:
    told = [story("fast", sample=sample) for sample in range(3)]
    same = [e.model_copy(update={"turns": (e.turns[0].model_copy(update={"triton_code": "x = 1"}),)}) for e in told]
    for view in ("sft", "rl", "raw"):
        assert len(rows_of(tmp_path / view, *same, view=view, near_duplicates=0.9)) == 1
        assert len(rows_of(tmp_path / f"{view}-all", *same, view=view)) == 3


@pytest.mark.parametrize("view", ["sft", "rl", "preference", "raw"])
def test_rows_whose_messages_show_examples_say_which(tmp_path: Path, view: str) -> None:
    told = [
        with_examples(story("wrong", "fast"), "kernelbook/7", "sakana/1/19_5"),
        story("wrong", "fast", of=task("exp")),
    ]
    shown, plain = (row for row in rows_of(tmp_path, *told, view=view) if view != "rl" or row["turn"])
    assert [example["example_id"] for example in shown["retrieved"]["examples"]] == ["kernelbook/7", "sakana/1/19_5"]
    assert plain["retrieved"] is None
    assert set(shown) == set(VIEWS[view].schema(ExportOptions(view)).names)  # type: ignore[arg-type]
