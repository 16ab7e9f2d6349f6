"""The preference view: the pairs' texts are those of their answers, whichever file they lie in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb_ray.exporting import preference
from kb_ray.exporting.options import ExportOptions, Filters
from kb_ray.exporting.sieve import Sieve
from kb_ray.records import Episode
from kb_ray.traces.reading import survey
from tests.unit.exporting.stories import store_of, story, task


def rows_of(folder: Path, *episodes: Episode, **options: Any) -> tuple[list[dict[str, Any]], Sieve]:
    chosen = ExportOptions("preference", **options)
    sieve = Sieve(chosen.filters, chosen.near_duplicates)
    return list(preference.rows(survey(store_of(folder, *episodes, part_rows=1)), chosen, sieve)), sieve


def sides(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (f"{row['chosen_status']} {row['chosen_speedup']}", f"{row['rejected_status']} {row['rejected_speedup']}")
        for row in rows
    ]


def test_right_over_wrong_and_faster_over_slower_across_samples(tmp_path: Path) -> None:
    told = [story("broken", "fast", sample=0), story("slow", sample=1), story("fast", of=task("exp"), sample=0)]
    rows, _ = rows_of(tmp_path, *told)
    assert sides(rows) == [
        ("ok 3.0", "compile_error None"),
        ("ok 3.0", "ok 0.5"),
        ("ok 0.5", "compile_error None"),
    ]
    assert [row["kind"] for row in rows] == ["correct_over_incorrect", "faster_over_slower", "correct_over_incorrect"]
    first = rows[0]
    assert first["chosen"] == [{"role": "assistant", "content": told[0].turns[1].completion.text}]
    assert first["rejected"] == [{"role": "assistant", "content": told[0].turns[0].completion.text}]
    assert [m["role"] for m in first["prompt"]] == ["system", "user"]
    assert first["chosen_episode_id"] == told[0].episode_id
    assert (first["chosen_turn"], first["rejected_turn"]) == (1, 0)
    assert set(first) == set(preference.schema(ExportOptions("preference")).names)


def test_the_prompt_can_be_held_equal(tmp_path: Path) -> None:
    told = [story("broken", "fast", sample=0), story("slow", sample=1)]
    rows, _ = rows_of(tmp_path, *told, same_prompt=True)
    # Only the first turns were asked the same.
    assert sides(rows) == [("ok 0.5", "compile_error None")]


def test_untrusted_successes_and_our_own_failures_are_in_no_pair(tmp_path: Path) -> None:
    rows, sieve = rows_of(tmp_path, story("odd", "ours", "wrong"))
    assert rows == []
    assert sieve.account() == "2 answers whose verdict cannot be relied on"


def test_an_untimed_success_beats_a_failure(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, story("wrong", "cpu"))
    assert sides(rows) == [("ok None", "mismatch None")]


def test_the_number_of_pairs_and_the_margin_are_as_asked(tmp_path: Path) -> None:
    told = [story("wrong", "broken", "fast", sample=s) for s in range(3)] + [story("twice", sample=9)]
    assert len(rows_of(tmp_path / "a", *told, pairs_per_task=2)[0]) == 2
    kinds = [row["kind"] for row in rows_of(tmp_path / "b", *told, pairs_per_task=50, margin=1.6)[0]]
    assert "faster_over_slower" not in kinds
    kinds = [row["kind"] for row in rows_of(tmp_path / "c", *told, pairs_per_task=50, margin=1.4)[0]]
    assert kinds.count("faster_over_slower") == 3


def test_filters_count_for_both_sides(tmp_path: Path) -> None:
    told = story("wrong", "broken", "fast")
    rows, sieve = rows_of(tmp_path, told, filters=Filters(status=frozenset({"ok", "mismatch"})))
    assert sides(rows) == [("ok 3.0", "mismatch None")]
    assert sieve.account() == "--status mismatch,ok removed 1 answer"


def test_reasoning_goes_with_both_answers(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, story("wrong", "fast"), reasoning="field")
    assert rows[0]["chosen"][0]["reasoning_content"] == "thought 1"
    assert rows[0]["rejected"][0]["reasoning_content"] == "thought 0"
