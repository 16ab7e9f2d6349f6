"""The check of a store: sound ones pass, and one planted fault of each kind is found where it was planted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb_ray.compact import compact
from kb_ray.records import Episode, Message, Retrieved, StopReason, Turn
from kb_ray.traces.layout import RUN_KEY
from kb_ray.traces.store import LocalStore, Store
from kb_ray.traces.views import episodes
from kb_ray.verifying.checking import check
from tests import synthetic_traces
from tests.unit.verifying.sound_stores import (
    RUN,
    add,
    change_episode,
    change_row,
    renamed,
    sound_store,
)


def kinds(store: Store) -> set[str]:
    return {str(fault.kind) for fault in check(store).faults}


def test_a_store_of_a_run_is_sound_before_and_after_a_compaction(store: Store) -> None:
    found = check(store)
    assert (found.faults, found.state, found.episodes, found.planned) == ((), "complete", 6, 6)
    compact(store, rows_per_file=4)
    assert check(store).faults == ()
    compact(store, delete_parts=True)
    found = check(store)
    assert (found.faults, found.episodes, found.rows) == ((), 6, 6)


def test_several_processes_find_the_same(store: Store) -> None:
    key = change_episode(store, turn(0, prompt_hash="0" * 16))
    alone, together = check(store), check(store, processes=2)
    assert alone == together
    assert [fault.part for fault in together.faults] == [key]


async def test_an_unfinished_run_is_sound_and_says_what_is_missing(tmp_path: Path) -> None:
    found = check(await sound_store(tmp_path, 4, planned=6, ending="signal"))
    assert (found.sound, found.state, found.missing) == (
        True,
        "unfinished",
        ("folder/t4 sample 0", "folder/t5 sample 0"),
    )


async def test_what_a_start_called_done_and_is_not_there_is_lost(tmp_path: Path) -> None:
    found = check(await sound_store(tmp_path, 4, planned=6, ending="done"))
    assert [(fault.kind, fault.episode) for fault in found.faults] == [
        ("lost", "folder/t4 sample 0"),
        ("lost", "folder/t5 sample 0"),
    ]
    assert (found.sound, found.missing) == (False, ())


def test_readers_pass_over_what_is_repeated_word_for_word(store: Store) -> None:
    add(store, lambda episode: episode)
    found = check(store)
    assert (found.faults, found.episodes, found.rows, found.repeated) == ((), 6, 7, 1)


def test_an_attempt_after_a_failure_of_ours_is_no_fault(store: Store) -> None:
    good = next(episodes(store))
    failed = {"stop_reason": StopReason.INFRA_ERROR, "error": "gone", "turns": (), "best_turn": None}
    change_episode(store, lambda e: e.model_copy(update=failed | {"messages": e.messages[:2]}))
    assert (check(store).faults, check(store).to_redo, check(store).state) == ((), 1, "unfinished")
    add(store, lambda _: renamed(good, attempt=2))
    found = check(store)
    assert (found.faults, found.superseded, found.to_redo, found.state) == ((), 1, 0, "complete")


def turn(index: int, /, **changes: Any) -> Callable[[Episode], Episode]:
    """One turn changed, and nothing else."""

    def changed(episode: Episode) -> Episode:
        turns = list(episode.turns)
        turns[index] = turns[index].model_copy(update=changes)
        return episode.model_copy(update={"turns": tuple(turns)})

    return changed


def verdict(index: int, /, **changes: Any) -> Callable[[Episode], Episode]:
    return lambda episode: turn(index, verdict=episode.turns[index].verdict.model_copy(update=changes))(episode)


def message(index: int, /, **changes: Any) -> Callable[[Episode], Episode]:
    def changed(episode: Episode) -> Episode:
        said: list[Message] = list(episode.messages)
        said[index] = said[index].model_copy(update=changes)
        return episode.model_copy(update={"messages": tuple(said)})

    return changed


def whole(**changes: Any) -> Callable[[Episode], Episode]:
    return lambda episode: episode.model_copy(update=changes)


def swapped(episode: Episode) -> Episode:
    first, second, *rest = episode.turns
    return episode.model_copy(update={"turns": (second, first, *rest)})


def other_feedback(episode: Episode) -> Episode:
    """Feedback and the message that says it agree with each other and not with the verdict."""
    told = (episode.turns[1].feedback_given or "") + "More."
    place = next(i for i, said in enumerate(episode.messages) if said.content == episode.turns[1].feedback_given)
    return message(place, content=told)(turn(1, feedback_given=told)(episode))


def one_turn_more(episode: Episode) -> Episode:
    last: Turn = episode.turns[-1].model_copy(update={"index": 3})
    return episode.model_copy(update={"turns": (*episode.turns, last)})


EXAMPLES = Retrieved(index="abc", wanted=1, examples=(), leak_overlap=0.9, leaks=0)
WITHIN: dict[str, tuple[str, Callable[[Episode], Episode]]] = {
    "another run's episode": ("identity", whole(run_id="other")),
    "an id that is not its own": ("identity", whole(episode_id="0" * 32)),
    "turns in another order": ("turns", swapped),
    "a turn's number": ("turns", turn(1, index=7)),
    "more turns than allowed": ("turns", one_turn_more),
    "another best turn": ("turns", whole(best_turn=0)),
    "a verdict's flags": ("verdict", verdict(0, compiled=False)),
    "fast without being correct": ("verdict", verdict(0, fast_0=True)),
    "more tests passed than there are": ("verdict", verdict(2, tests_passed=9)),
    "another stop reason": ("stop", whole(stop_reason=StopReason.MAX_TURNS)),
    "an unfinished conversation called solved": ("stop", lambda e: whole(turns=e.turns[:2], best_turn=0)(e)),
    "an answer's message": ("messages", lambda e: message(len(e.messages) - 1, content="other")(e)),
    "a message too few": ("messages", lambda e: whole(messages=e.messages[:-1])(e)),
    "an opening that asks nothing": ("messages", lambda e: whole(messages=e.messages[-5:])(e)),
    "feedback's message": ("feedback", lambda e: message(len(e.messages) - 2, content="other")(e)),
    "feedback of another verdict": ("feedback", other_feedback),
    "a turn without feedback in the middle": ("feedback", turn(0, feedback_given=None)),
    "code that is not in the answer": ("code", turn(0, triton_code="pass\n")),
    "another rule of extraction": ("code", turn(0, extraction_rule="bare")),
    "no code where there is some": ("code", turn(2, triton_code=None)),
    "a prompt's hash": ("prompt", turn(1, prompt_hash="0" * 16)),
    "the first prompt's hash": ("prompt", turn(0, prompt_hash="0" * 16)),
    "examples that the run does not show": ("retrieved", whole(retrieved=EXAMPLES)),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHIN)
def test_a_fault_within_an_episode_is_found_and_named(store: Store, name: str) -> None:
    kind, change = WITHIN[name]
    key = change_episode(store, change)
    found = check(store)
    assert kind in {str(fault.kind) for fault in found.faults}
    assert {fault.part for fault in found.faults} == {key}
    assert len({fault.episode for fault in found.faults}) == 1
    assert found.faults[0].episode.endswith(" sample 0 attempt 1")
    assert not found.sound


COLUMNS: dict[str, Any] = {"num_turns": 2, "correct": False, "final_triton_code": "x", "final_result": None}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_repeats_something_else_is_found(store: Store, column: str) -> None:
    change_row(store, lambda row: row | {column: COLUMNS[column]})
    assert kinds(store) == {"columns"}


def test_a_row_that_is_no_episode_is_found_and_the_others_still_count(store: Store) -> None:
    key = change_row(store, lambda row: row | {"stop_reason": "fun"})
    found = check(store)
    assert [(fault.kind, fault.part, fault.episode) for fault in found.faults] == [
        ("row", key, "row 0"),
        ("lost", "", "folder/t0 sample 0"),
    ]
    assert found.episodes == 5


def test_a_half_written_file_is_no_fault_and_is_mentioned(store: Store) -> None:
    assert isinstance(store, LocalStore)
    (Path(store.uri) / "parts" / ".tmp-1234").write_bytes(b"half")
    found = check(store)
    assert found.sound
    assert any("half-written" in note for note in found.notes)


def test_a_store_that_nobody_planned_is_checked_as_far_as_it_goes(tmp_path: Path) -> None:
    made = synthetic_traces.open_folder(tmp_path / "out", 12, hostile=False)
    found = check(made)
    assert found.state == "unknown"
    assert any("run.json" in note for note in found.notes)
    # Its texts and ids are drawn: the numbers and the files are sound, what was said is not.
    assert {fault.kind for fault in found.faults} <= {"prompt", "messages", "feedback", "turns", "task"}


def test_of_another_wording_only_what_any_must_say_is_checked(store: Store) -> None:
    store.replace(RUN_KEY, RUN.model_copy(update={"versions": {"wording": "another"}}).model_dump_json().encode())
    change_episode(store, other_feedback)
    found = check(store)
    # Its prompt was another one, whatever the words mean.
    assert {str(fault.kind) for fault in found.faults} == {"prompt"}
    assert any("another kb_ray" in note for note in found.notes)


def test_of_another_wording_feedback_must_still_say_what_the_verdict_is(store: Store) -> None:
    store.replace(RUN_KEY, RUN.model_copy(update={"versions": {}}).model_dump_json().encode())
    change_episode(store, lambda e: message(3, content="SUCCESS")(turn(0, feedback_given="SUCCESS")(e)))
    assert {"feedback", "prompt"} <= kinds(store)
