"""Verdicts that cannot be: each contradiction is named by the check, and refused by readers where it would count."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from kb_ray.bench.protocol import judged
from kb_ray.errors import ConfigError
from kb_ray.records import Environment, Episode, ErrorDetail, Evidence, Stage, Status, Timing, Usage, Verdict
from kb_ray.traces.layout import RUN_KEY
from kb_ray.traces.reading import survey
from kb_ray.traces.schema import impossible
from kb_ray.traces.store import Store
from kb_ray.traces.views import episodes
from kb_ray.verifying.checking import check
from tests.unit.verifying.sound_stores import RUN, change_episode

R = TypeVar("R", bound=BaseModel)
CPU, GPU = Environment(device="cpu"), Environment(device="cuda")
PASSED: dict[str, Any] = {"tests_passed": 5, "tests_total": 5}
UNTIMED = Verdict.of(Status.OK, Stage.FULL, env=CPU, **PASSED)
TIMED = Verdict.of(Status.OK, Stage.TIMING, env=GPU, trusted=True, speedup=1.5, **PASSED)
WRONG = Verdict.of(Status.MISMATCH, Stage.FULL, env=CPU, tests_passed=1, tests_total=5)
ERROR = ErrorDetail(category="CORRECTNESS ERROR", message="wrong")


def changed(record: R, **changes: Any) -> R:
    return record.model_copy(update=changes)


def timing(ms: float) -> Timing:
    return Timing(median_ms=ms, trimmed_mean_ms=ms, std_ms=0.0, n=2, samples_ms=(ms, ms))


IMPOSSIBLE: dict[str, tuple[Verdict, str]] = {
    "right with fewer tests": (changed(UNTIMED, tests_passed=2), "ok with 2 of 5"),
    "tests below nought": (changed(UNTIMED, tests_passed=-4, tests_total=-1), "ok with -4 of -1"),
    "wrong with tests below nought": (changed(WRONG, tests_passed=-1), "mismatch with -1 of 5"),
    "more tests than there are": (changed(WRONG, tests_passed=9), "mismatch with 9 of 5"),
    "right with an error": (changed(UNTIMED, error=ERROR), "ok with an error: CORRECTNESS ERROR"),
    "fast without a speedup": (changed(UNTIMED, fast_1=True), "do not follow from no speedup"),
    "not fast without a speedup": (changed(UNTIMED, fast_2=False), "do not follow from no speedup"),
    "faster than it is": (changed(TIMED, fast_2=True), "do not follow from a speedup of 1.5"),
    "fast and unknown": (changed(TIMED, fast_1=None), "do not follow from a speedup of 1.5"),
    "timed without a speedup": (changed(UNTIMED, timed=True), "timed, without a speedup"),
    "a speedup of no timing": (changed(TIMED, timed=False), "a speedup of 1.5, not timed"),
    "trusted on a CPU": (changed(UNTIMED, trusted=True), "trusted, though reached on a CPU"),
    "wrong and trusted on a CPU": (changed(WRONG, trusted=True), "trusted, though reached on a CPU"),
    "compiled and correct": (changed(UNTIMED, compiled=False), "do not follow from ok at full"),
    "correct and wrong": (changed(WRONG, correct=True, fast_0=True), "do not follow from mismatch at full"),
    "right and not counted": (changed(UNTIMED, fast_0=False), "fast_0 is not correct"),
}
ODD: dict[str, tuple[Verdict, str]] = {
    "right without a test": (changed(UNTIMED, tests_passed=0, tests_total=0), "ok without a test"),
    "on another candidate": (changed(UNTIMED, judged="0" * 32), "its verdict is on another candidate"),
    "right before it was run": (Verdict.of(Status.OK, Stage.LOAD, env=CPU, **PASSED), "ok at load, before all tests"),
    "faster than by its times": (
        changed(TIMED, kernel_time=timing(2.0), reference_time=timing(1.0)),
        "a speedup of 1.5, by its times 0.5",
    ),
    "times that are not there": (
        changed(TIMED, kernel_time=changed(timing(2.0), n=50)),
        "50 times of the kernel, and 2",
    ),
    "a failure of ours": (Verdict.of(Status.INFRA_ERROR, Stage.STATIC, env=CPU), "infra_error is no verdict"),
}
"""What only the check tells: readers count neither more nor less for it."""
POSSIBLE: dict[str, Verdict] = {
    "right on a CPU": UNTIMED,
    "right and timed": TIMED,
    "right and not timed on a GPU": Verdict.of(Status.OK, Stage.FULL, env=GPU, trusted=True, **PASSED),
    "timed as it says": changed(TIMED, kernel_time=timing(2.0), reference_time=timing(3.0)),
    "slow": Verdict.of(Status.OK, Stage.TIMING, env=GPU, trusted=True, speedup=0.5, **PASSED),
    "of no code": Verdict.of(Status.NO_CODE, Stage.EXTRACT, trusted=True, error=ERROR),
    "decided by the source": Verdict.of(Status.FORBIDDEN, Stage.STATIC, env=CPU, tests_total=5, error=ERROR),
    "wrong at the end": Verdict.of(Status.MISMATCH, Stage.TIMING, env=GPU, trusted=True, error=ERROR, **PASSED),
}


def with_verdict(verdict: Verdict) -> Callable[[Episode], Episode]:
    """The last turn with another verdict, and the best turn that follows."""

    def change(episode: Episode) -> Episode:
        *others, last = episode.turns
        about = verdict.judged or judged(episode.task, last.triton_code or "")
        turns = (*others, last.model_copy(update={"verdict": changed(verdict, judged=about)}))
        return episode.model_copy(update={"turns": turns})

    return change


def told(store: Store) -> list[str]:
    return [fault.what for fault in check(store).faults if fault.kind == "verdict"]


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_contradiction_is_told_once_and_no_reader_takes_the_row(store: Store, name: str) -> None:
    verdict, what = IMPOSSIBLE[name]
    change_episode(store, with_verdict(verdict))
    assert [what in line for line in told(store) if line.startswith("turn 2: ") and what in line] == [True]
    with pytest.raises(ConfigError, match="is no episode: folder/t0, sample 0: turn 2: "):
        survey(store)


@pytest.mark.parametrize("name", ODD)
def test_what_no_run_keeps_is_told_and_readers_take_the_row(store: Store, name: str) -> None:
    verdict, what = ODD[name]
    change_episode(store, with_verdict(verdict))
    assert [what in line for line in told(store)] == [True]
    assert survey(store).episodes == 6


@pytest.mark.parametrize("name", POSSIBLE)
def test_what_the_bench_says_is_no_fault(store: Store, name: str) -> None:
    change = with_verdict(POSSIBLE[name])
    assert impossible(change(next(episodes(store)))) is None
    change_episode(store, change)
    assert [line for line in told(store) if "no code is in the answer" not in line] == []


def test_two_right_verdicts_in_each_others_place_are_told(store: Store) -> None:
    """Nothing else about them need differ."""

    def change(own: bool) -> Callable[[Episode], Episode]:
        def stamp(episode: Episode) -> Episode:
            codes = [turn.triton_code or "" for turn in episode.turns]
            about = judged(episode.task, codes[-1] if own else codes[0])
            return with_verdict(changed(UNTIMED, judged=about))(episode)

        return stamp

    change_episode(store, change(own=True))
    assert told(store) == []
    change_episode(store, change(own=False))
    assert told(store) == ["turn 2: its verdict is on another candidate"]


@pytest.mark.parametrize(
    ("version", "wrong"), [(4, []), (5, ["turn 2: its verdict does not say which candidate it is about"])]
)
def test_a_verdict_says_what_it_is_about_since_verdicts_do(store: Store, version: int, wrong: list[str]) -> None:
    def change(episode: Episode) -> Episode:
        *others, last = episode.turns
        turns = (*others, changed(last, verdict=changed(last.verdict, judged=None)))
        return changed(episode, turns=turns)

    store.replace(RUN_KEY, changed(RUN, schema_version=version).model_dump_json().encode())
    change_episode(store, change)
    assert told(store) == wrong


OF_THE_RUN: dict[str, tuple[Verdict, list[str]]] = {
    "as the run says": (changed(UNTIMED, verifier_version="7"), []),
    "decided by the source": (Verdict.of(Status.FORBIDDEN, Stage.STATIC, error=ERROR), []),
    "on another device": (changed(TIMED, verifier_version="7"), ["turn 2: reached on cuda, the run's are on cpu"]),
    "of another version": (changed(UNTIMED, verifier_version="6"), ["turn 2: of verifier 6, the run's are of 7"]),
    "with fewer tests": (changed(UNTIMED, tests_passed=1, tests_total=1), ["turn 2: 1 tests, the run has 5"]),
}


@pytest.mark.parametrize("name", OF_THE_RUN)
def test_a_verdict_is_of_the_runs_bench(store: Store, name: str) -> None:
    verdict, wrong = OF_THE_RUN[name]
    identity = {**RUN.identity, "device": "cpu", "verifier version": "7", "n-correctness": 5}
    store.replace(RUN_KEY, changed(RUN, identity=identity).model_dump_json().encode())
    change_episode(store, with_verdict(verdict))
    assert [line for line in told(store) if "no code is in the answer" not in line] == wrong


def test_a_candidate_that_no_file_can_hold_as_it_was_is_not_compared(store: Store) -> None:
    def change(episode: Episode) -> Episode:
        episode = with_verdict(changed(UNTIMED, judged=judged(episode.task, "x = '\ud800'")))(episode)
        *others, last = episode.turns
        return episode.model_copy(update={"turns": (*others, last.model_copy(update={"triton_code": "x = '\ufffd'"}))})

    change_episode(store, change)
    assert told(store) == []


AMOUNTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an answer before it was asked": ({"latency_s": -1.0}, {}, "latency_s is -1 s"),
    "an answer that never came": ({"latency_s": math.nan}, {}, "latency_s is nan s"),
    "fewer tokens than none": ({"usage": Usage(completion_tokens=-3)}, {}, "completion_tokens is -3"),
    "probabilities of other tokens": (
        {"token_ids": (1, 2, 3), "logprobs": (-0.1,)},
        {},
        "1 log-probabilities of 3 tokens",
    ),
    "more than certain": ({"token_ids": (1,), "logprobs": (0.5,)}, {}, "a log-probability above 0"),
    "no probability": (
        {"token_ids": (1,), "logprobs": (math.nan,)},
        {},
        "a log-probability above 0, or that is no number",
    ),
    "launches below nought": ({}, {"evidence": Evidence(kernel_launches=-3)}, "kernel_launches is -3"),
    "an interval upside down": ({}, {"speedup_low": 2.0, "speedup_high": 1.0}, "interval goes from 2 to 1"),
    "a phase before it began": ({}, {"seconds": {"check": -2.0}}, "check is -2 s"),
}


@pytest.mark.parametrize("name", AMOUNTS)
def test_an_amount_that_nothing_can_take_is_told(store: Store, name: str) -> None:
    answer, verdict, what = AMOUNTS[name]

    def change(episode: Episode) -> Episode:
        *others, last = episode.turns
        completion = last.completion.model_copy(update=answer)
        turn = last.model_copy(update={"completion": completion, "verdict": changed(last.verdict, **verdict)})
        return episode.model_copy(update={"turns": (*others, turn)})

    change_episode(store, change)
    assert [what in fault.what for fault in check(store).faults if fault.kind == "row"] == [True]


def test_a_certain_token_and_one_that_cannot_be_are_no_faults(store: Store) -> None:
    sure = {"token_ids": (1, 2, 3), "logprobs": (0.0, 1e-7, -math.inf)}

    def change(episode: Episode) -> Episode:
        first, *others = episode.turns
        turn = first.model_copy(update={"completion": first.completion.model_copy(update=sure)})
        return episode.model_copy(update={"turns": (turn, *others)})

    change_episode(store, change)
    assert [fault for fault in check(store).faults if fault.kind == "row"] == []
