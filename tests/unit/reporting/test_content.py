"""What the page and the plots are made from: draws, figures, tables, differences, pictures; by hand-made cases."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kb_ray.records import ErrorDetail, Status, StopReason
from kb_ray.reporting.content import content, task_table
from kb_ray.reporting.figure import STATUS_COLOURS
from kb_ray.reporting.figures import figures, histogram
from kb_ray.reporting.gathering import Gathered, gathered_of, waits
from kb_ray.reporting.mismatch import Mismatch, mismatch_of
from kb_ray.reporting.packing import pack, plain, unpack
from kb_ray.reporting.sampling import draw, stratum
from kb_ray.reporting.viewing import MAX_TEXT, clip, line_changes, shown
from kb_ray.score.metrics import summarise_outcomes
from kb_ray.score.summary import Summary
from tests.synthetic_traces import episodes, hostile_episode
from tests.unit.traces.examples import any_episode, make_episode


@pytest.fixture(scope="module")
def gathered() -> Gathered:
    found = list(episodes(400))  # Task 96 is the first flagged one.
    return gathered_of(found, [("part", row) for row in range(len(found))])


@pytest.fixture(scope="module")
def summary(gathered: Gathered) -> Summary:
    return summarise_outcomes(gathered.outcomes)


def bars(values: list[float], per_doubling: int = 1) -> Any:
    return histogram("n", "t", values, per_doubling, "note", "x", "y", "nothing")


def test_bins_are_logarithmic_and_have_an_edge_at_1() -> None:
    figure = bars([0.5, 0.99, 1.0, 1.5, 2.0, 7.9])
    assert figure.x == (0.5, 1.0, 2.0, 4.0, 8.0)
    assert figure.series[0].y == (2.0, 2.0, 1.0, 1.0)
    assert bars([]).empty == "nothing"
    assert bars([0.0, -1.0, math.inf]).empty == "nothing"


@given(st.lists(st.floats(1e-6, 1e6), min_size=1), st.integers(1, 4))
def test_every_positive_value_is_in_a_bin(values: list[float], per_doubling: int) -> None:
    figure = bars(values, per_doubling)
    assert sum(y or 0 for y in figure.series[0].y) == len(values)
    assert len(figure.x) == len(figure.series[0].y) + 1
    assert figure.x[0] <= min(values) * (1 + 1e-12)
    assert max(values) <= figure.x[-1] * (1 + 1e-12)


def test_every_status_has_a_colour_of_its_own() -> None:
    assert set(STATUS_COLOURS) == set(Status)
    assert len(set(STATUS_COLOURS.values())) >= len(Status) - 2


def test_figures_say_what_the_metrics_say(gathered: Gathered, summary: Summary) -> None:
    part = summary.everything
    assert part is not None
    drawn = {
        figure.name: figure for figure in figures(part, gathered.outcomes, {"model": 2.0, "check": 3.0, "none": 0.0})
    }
    assert len(drawn) == 8
    assert all(figure.empty is None for figure in drawn.values())
    assert list(zip(drawn["fast_p"].x, drawn["fast_p"].series[0].y, strict=True)) == list(part.curve)
    for turn in range(len(part.turns)):
        assert sum(series.y[turn] or 0.0 for series in drawn["statuses_by_turn"].series) == pytest.approx(1.0)
    solved = drawn["success_by_turn"].series[0]
    assert solved.y == tuple(turn.solved_by.value for turn in part.turns)
    assert solved.low == tuple(turn.solved_by.low for turn in part.turns)
    assert drawn["where_time_went"].categories == ("check", "model")
    assert sum(y or 0 for y in drawn["tokens"].series[0].y) == sum(len(item.turns) for item in gathered.outcomes)
    best = [item.best_answer for item in gathered.outcomes]
    assert sum(y or 0 for y in drawn["speedups"].series[0].y) == sum(1 for turn in best if turn and turn.speedup)


def test_the_sets_are_those_of_the_metrics_and_each_counts_its_own_tasks(gathered: Gathered, summary: Summary) -> None:
    told = content(gathered, summary=summary)
    keys = [scope["key"] for scope in told["scopes"]]
    assert keys == ["overall", "source:kernelbench", "source:kernelbook", "level:1", "level:2", "level:3", "level:none",
                    "flagged", "everything"]  # fmt: skip
    table = told["tasks"]
    episodes_of = {scope["key"]: scope["metrics"]["episodes"] for scope in told["scopes"]}
    assert episodes_of["everything"] == sum(table["episodes"]) == 400
    assert (
        episodes_of["flagged"]
        == sum(n for n, flag in zip(table["episodes"], table["flagged"], strict=True) if flag)
        > 0
    )
    assert episodes_of["overall"] == episodes_of["everything"] - episodes_of["flagged"]


def test_a_task_shows_its_best() -> None:
    table = task_table(gathered_of([make_episode(), make_episode(sample=1)], []).outcomes, set())
    assert table == {
        "task": ["builtin/1/add_relu"], "source": ["builtin"], "level": [1], "flagged": [False], "episodes": [2],
        "correct": [2], "status": ["ok"], "speedup": [2.5], "solved_at": [2], "tokens": [28],
    }  # fmt: skip
    assert task_table([], set()) == {}


def test_what_our_side_failed_is_neither_correct_nor_fast_in_the_table() -> None:
    failed = make_episode().model_copy(update={"stop_reason": StopReason.INFRA_ERROR})
    lost = make_episode(sample=1).model_copy(update={"stop_reason": StopReason.MODEL_ERROR})
    table = task_table(gathered_of([failed, lost], []).outcomes, set())
    shown_of = {name: table[name] for name in ("episodes", "correct", "status", "speedup", "solved_at", "tokens")}
    assert shown_of == {
        "episodes": [2], "correct": [0], "status": ["infra_error"], "speedup": [None], "solved_at": [None],
        "tokens": [28],
    }  # fmt: skip


def test_waits_of_a_turn_add_up_to_it() -> None:
    turn = make_episode().turns[1]
    assert waits(turn) == {"place at the model": 0.0, "model": 0.0, "verdict: load": 0.25, "verdict: rest": 0.0}


@given(st.integers(0, 60), st.integers(0, 5))
def test_a_draw_is_repeatable_and_fair_to_kinds(most: int, seed: int) -> None:
    found = _FOUND
    drawn = draw(found, most, seed)
    assert drawn == draw(found, most, seed)
    assert len(set(drawn)) == len(drawn) == min(most, len(found))
    held, whole = Counter(stratum(found[at]) for at in drawn), Counter(map(stratum, found))
    for kind, count in whole.items():
        assert held[kind] >= min(count, most // len(whole)), kind


_FOUND = gathered_of(episodes(48), []).outcomes


def test_another_seed_draws_others() -> None:
    assert draw(_FOUND, 10, 0) != draw(_FOUND, 10, 1)


@pytest.mark.parametrize(
    ("pattern", "wrong", "expected"),
    [
        ("all elements, all zeros", 64, Mismatch(wrong=64, total=64, where="all")),
        ("only the tail from flat index 48, all zeros", 16, Mismatch(wrong=16, total=64, where="tail", start=48)),
        ("every 4-th element from flat index 3", 16, Mismatch(wrong=16, total=64, where="every", start=3, step=4)),
        ("precision: each error is small", 5, Mismatch(wrong=5, total=64, where="unknown")),
        (None, 5, Mismatch(wrong=5, total=64, where="unknown")),
        (None, 0, None),
    ],
)
def test_places_of_a_mismatch_come_from_what_was_seen(
    pattern: str | None, wrong: int, expected: Mismatch | None
) -> None:
    error = ErrorDetail(category="c", message="m", pattern=pattern, wrong_elements=wrong, total_elements=64)
    assert mismatch_of(error) == expected
    assert mismatch_of(None) is None


def test_the_words_of_patterns_are_those_that_the_verifier_uses() -> None:
    torch = pytest.importorskip("torch", reason="the verifier's own words need torch")
    from kb_ray.bench.child.mismatch import describe
    from kb_ray.bench.child.tolerance import Tolerance

    right = torch.arange(64.0) + 1

    def seen(wrong: slice) -> Mismatch | None:
        got = right.clone()
        got[wrong] = got[wrong] * 3 + 0.5 * torch.arange(len(got[wrong]))
        found = describe(right, got, Tolerance(1e-5, 1e-5))
        return mismatch_of(ErrorDetail(category="c", message="m", pattern=found.pattern,
                                       wrong_elements=found.wrong, total_elements=found.total))  # fmt: skip

    assert seen(slice(48, None)) == Mismatch(wrong=16, total=64, where="tail", start=48)
    assert seen(slice(3, 40, 4)) == Mismatch(wrong=10, total=64, where="every", start=3, step=4)
    assert seen(slice(None)) == Mismatch(wrong=64, total=64, where="all")


_LINES = st.lists(st.sampled_from(["a", "b", "c", "    d"]), max_size=12)


@given(_LINES, _LINES)
def test_differences_turn_one_program_into_the_other(before: list[str], after: list[str]) -> None:
    hunks = line_changes("\n".join(before), "\n".join(after))
    assert hunks is not None
    removed = [line for hunk in hunks for sign, line in hunk if sign == "-"]
    added = [line for hunk in hunks for sign, line in hunk if sign == "+"]
    old, new = Counter("\n".join(before).splitlines()), Counter("\n".join(after).splitlines())
    assert old - Counter(removed) + Counter(added) == new
    assert (hunks == []) == ("\n".join(before).splitlines() == "\n".join(after).splitlines())


def test_there_is_no_difference_without_two_programs_or_between_huge_ones() -> None:
    assert line_changes(None, "x") is None
    assert line_changes("x", None) is None
    assert line_changes("x\n" * 3001, "x") is None


def test_long_lines_and_long_differences_are_cut_and_say_so() -> None:
    assert line_changes("x" * 5000, "y") == [
        [["-", "x" * 1000 + " [4000 more characters are in the trace store]"], ["+", "y"]]
    ]
    old, new = "\n".join(["a" * 900] * 200), "\n".join(["b" * 900] * 200)
    hunks = line_changes(old, new)
    assert hunks is not None
    assert sum(len(line) for hunk in hunks for _, line in hunk) < MAX_TEXT + 100
    shown_lines = MAX_TEXT // 900
    assert hunks[-1] == [[" ", f"[{400 - shown_lines} more lines of changes are in the trace store]"]]


def test_a_long_text_is_cut_and_says_so() -> None:
    assert clip("x" * MAX_TEXT) == "x" * MAX_TEXT
    assert clip("x" * (MAX_TEXT + 7)) == "x" * MAX_TEXT + "\n[7 more characters are in the trace store]"
    assert clip(None) is None


# Drawing one of every field of every record is slow on a busy machine.
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_episode())
def test_any_episode_can_be_shown_and_packed(episode: Any) -> None:
    told = unpack(pack(shown(episode)))
    assert told["id"] == episode.episode_id
    assert len(told["turns"]) == len(episode.turns)
    assert told == plain(shown(episode))


def test_a_packed_text_has_no_character_that_html_reads() -> None:
    assert set("<>&\"'") & set(pack(shown(hostile_episode()))) == set()


def test_numbers_that_json_does_not_know_become_their_names() -> None:
    assert unpack(pack({"a": [math.nan, math.inf, 1.5], "b": (None, True)})) == {
        "a": ["nan", "inf", 1.5],
        "b": [None, True],
    }


def test_an_episode_without_a_turn_shows_what_was_asked_and_what_failed() -> None:
    told = shown(make_episode(stop=StopReason.INFRA_ERROR))
    assert (told["turns"], told["best"], told["error"]) == ([], None, "gone")
    assert told["opening"] == [{"role": "user", "content": "write it"}]
    assert shown(make_episode())["turns"][1]["diff"] == [[["-", "code 0"], ["+", "code 1"]]]
