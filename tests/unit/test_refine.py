"""The rules of the state machine, one by one. Properties over random episodes: test_refine_properties."""

from __future__ import annotations

from typing import Any

import pytest
from refine_pieces import CODE, OPENING, TASK, completion, failed, ok

from kb_ray.prompts.feedback import feedback
from kb_ray.prompts.opening import prompt_hash
from kb_ray.records import (
    Episode,
    ErrorDetail,
    Message,
    Stage,
    Status,
    StopReason,
    Turn,
    Verdict,
)
from kb_ray.refine import (
    Action,
    Answered,
    Ask,
    ContextExhausted,
    Evaluate,
    Event,
    Finish,
    InfraFailed,
    Judged,
    ModelFailed,
    Policy,
    State,
    best_turn,
    prompt_of,
    requests,
    start,
    step,
    to_episode,
)


def play(verdicts: list[Verdict], **policy: Any) -> tuple[State, Action]:
    """The state and action after an answer and a verdict for each of `verdicts`."""
    state, action = start(TASK, OPENING, Policy(**policy))
    for verdict in verdicts:
        state, action = step(state, Answered(completion=completion()))
        assert action == Evaluate(code=CODE)
        state, action = step(state, Judged(verdict=verdict, bench_s=1.5))
    return state, action


def episode(state: State, finish: Finish) -> Episode:
    return to_episode(state, finish, episode_id="e", run_id="r", sample=0, attempt=1, created_at="now")


def turn(index: int, verdict: Verdict) -> Turn:
    return Turn(
        index=index, prompt_hash="h", completion=completion(), triton_code=CODE, feedback_given=None, verdict=verdict
    )


def test_an_episode_begins_by_asking_the_opening() -> None:
    state, action = start(TASK, OPENING, Policy(max_turns=4))
    assert action == Ask(messages=OPENING)
    assert state.turns == ()


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (ok(1.0), StopReason.SUCCESS_FAST),
        (ok(3.0), StopReason.SUCCESS_FAST),
        (ok(None), StopReason.SUCCESS_UNTIMED),
        (ok(None, trusted=False), StopReason.SUCCESS_UNTIMED),
        (ok(0.99), None),
        (ok(3.0, trusted=False), None),
        (failed(), None),
        (failed(Status.HACK), None),
    ],
)
def test_only_a_correct_kernel_that_is_fast_and_trusted_or_cannot_be_timed_ends_an_episode_early(
    verdict: Verdict, reason: StopReason | None
) -> None:
    _, action = play([verdict], max_turns=4)
    if reason:
        assert action == Finish(stop_reason=reason, best_turn=0)
    else:
        assert isinstance(action, Ask)
        assert action.messages[-1] == Message(role="user", content=feedback(verdict, 1.0))


def test_the_target_speedup_is_the_policys() -> None:
    _, slow = play([ok(1.9)], max_turns=2, target_speedup=2.0)
    _, fast = play([ok(2.0)], max_turns=2, target_speedup=2.0)
    assert isinstance(slow, Ask)
    assert "TOO SLOW" in slow.messages[-1].content
    assert fast == Finish(stop_reason=StopReason.SUCCESS_FAST, best_turn=0)


def test_the_last_turn_ends_the_episode_without_feedback() -> None:
    state, action = play([failed(), failed(passed=3)], max_turns=2)
    assert action == Finish(stop_reason=StopReason.MAX_TURNS, best_turn=1)
    assert [t.feedback_given is None for t in state.turns] == [False, True]
    assert state.messages[-1].role == "assistant"


def test_an_answer_without_code_is_a_turn_that_is_not_evaluated() -> None:
    state, _ = start(TASK, OPENING, Policy(max_turns=2))
    state, action = step(state, Answered(completion=completion("No."), model_s=2.0))
    assert isinstance(action, Ask)
    assert "FORMAT ERROR" in action.messages[-1].content
    verdict = state.turns[0].verdict
    assert (verdict.status, verdict.stage) == (Status.NO_CODE, Stage.EXTRACT)
    assert state.turns[0].triton_code is None
    assert verdict.error is not None
    assert verdict.error.message in action.messages[-1].content


def test_a_cut_off_answer_is_told_so() -> None:
    state, _ = start(TASK, OPENING, Policy(max_turns=2))
    state, action = step(state, Answered(completion=completion("```python\nimport torch", "length")))
    assert state.turns[0].verdict.status is Status.TRUNCATED
    assert isinstance(action, Ask)
    assert "token limit" in action.messages[-1].content


@pytest.mark.parametrize("n", [5, 7])
@pytest.mark.parametrize("answer", [completion("No."), completion("```python\nimport torch", "length")])
def test_an_answer_without_code_is_told_that_it_passed_none_of_the_runs_tests(n: int, answer: Any) -> None:
    state, _ = start(TASK, OPENING, Policy(max_turns=2, n_correctness=n))
    state, action = step(state, Answered(completion=answer))
    assert isinstance(action, Ask)
    assert f"- **Tests Passed**: 0/{n}\n" in action.messages[-1].content


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ModelFailed(message="server gone"), StopReason.MODEL_ERROR),
        (ContextExhausted(message="prompt too long"), StopReason.CONTEXT),
    ],
)
def test_a_model_that_does_not_answer_ends_the_episode_and_keeps_its_turns(event: Event, reason: StopReason) -> None:
    state, _ = play([failed()], max_turns=4)
    _, action = step(state, event)
    assert action == Finish(stop_reason=reason, best_turn=0, error=event.message)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "event",
    [InfraFailed(message="node lost"), Judged(verdict=failed(Status.INFRA_ERROR).model_copy(update={"error": None}))],
)
def test_a_failure_of_ours_is_no_turn(event: Event) -> None:
    before, _ = play([failed()], max_turns=4)
    judging, _ = step(before, Answered(completion=completion()))
    state, action = step(judging, event)
    assert isinstance(action, Finish)
    assert action.stop_reason is StopReason.INFRA_ERROR
    assert action.error
    assert state.turns == before.turns
    assert state.messages == before.messages


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        ("asking", Judged(verdict=ok())),
        ("asking", InfraFailed(message="x")),
        ("judging", Answered(completion=completion())),
        ("judging", ModelFailed(message="x")),
        ("judging", ContextExhausted(message="x")),
        ("finished", Answered(completion=completion())),
        ("finished", Judged(verdict=ok())),
        ("finished", ModelFailed(message="x")),
    ],
)
def test_an_event_that_cannot_happen_is_refused(phase: str, event: Event) -> None:
    state, _ = start(TASK, OPENING, Policy(max_turns=2))
    if phase != "asking":
        state, _ = step(state, Answered(completion=completion()))
    if phase == "finished":
        state, _ = step(state, InfraFailed(message="x"))
    with pytest.raises(ValueError, match="cannot happen"):
        step(state, event)


def test_a_turn_records_what_was_asked_answered_and_waited_for() -> None:
    state, _ = start(TASK, OPENING, Policy(max_turns=1))
    answered = Answered(completion=completion(), model_queue_s=0.5, model_s=2.0, policy_version="7")
    state, _ = step(state, answered)
    state, finish = step(state, Judged(verdict=ok(2.0), bench_s=1.5))
    (only,) = state.turns
    assert only.prompt_hash == prompt_hash(OPENING)
    assert (only.times.model_queue_s, only.times.model_s, only.times.bench_s) == (0.5, 2.0, 1.5)
    assert (only.triton_code, only.extraction_rule, only.policy_version) == (CODE, "fence", "7")
    assert isinstance(finish, Finish)
    made = episode(state, finish)
    assert made.messages[-1] == Message(role="assistant", content=completion().text, reasoning="because")
    assert Episode.model_validate_json(made.model_dump_json()) == made


def test_feedback_shows_the_candidates_own_line() -> None:
    error = ErrorDetail(category="X", message="it failed", line=2)
    verdict = failed().model_copy(update={"error": error})
    _, action = play([verdict], max_turns=2)
    assert isinstance(action, Ask)
    assert "line 2: it failed\n2 |     return kernel[(1,)](x)\n" in action.messages[-1].content


def test_a_shortened_request_is_the_one_whose_hash_the_turn_keeps_and_can_be_found_again() -> None:
    state, _ = play([failed(), failed(passed=2)], max_turns=3)
    choices = requests(state)
    assert len(choices) >= 2
    for sent in choices:
        after, _ = step(state, Answered(completion=completion(), sent=sent))
        after, finish = step(after, Judged(verdict=failed()))
        assert after.turns[-1].prompt_hash == prompt_hash(sent)
        assert after.messages[: len(state.messages)] == state.messages
        assert isinstance(finish, Finish)
        made = episode(after, finish)
        assert prompt_hash(prompt_of(made, 2)) == prompt_hash(sent)
        assert [len(prompt_of(made, index)) for index in (0, 1)] == [2, 4]


def test_a_prompt_that_no_form_of_the_conversation_has_is_not_made_up() -> None:
    state, finish = play([failed()], max_turns=1)
    assert isinstance(finish, Finish)
    made = episode(state, finish)
    other = made.model_copy(update={"turns": (made.turns[0].model_copy(update={"prompt_hash": "0" * 16}),)})
    with pytest.raises(ValueError, match="no form of the conversation"):
        prompt_of(other, 0)


@pytest.mark.parametrize(
    ("verdicts", "best"),
    [
        ([], None),
        ([ok(1.2), ok(1.5), ok(1.5)], 1),
        ([ok(9.0, trusted=False), ok(0.5)], 1),
        ([ok(2.0, trusted=False), ok(9.0, trusted=False)], 0),
        ([failed(), ok(None, trusted=False), ok(None, trusted=False)], 1),
        ([failed(stage=Stage.TINY, passed=4), failed(stage=Stage.FULL)], 1),
        ([failed(passed=1), failed(passed=3), failed(passed=3)], 1),
        ([failed(Status.NO_CODE, Stage.EXTRACT), failed(Status.COMPILE_ERROR, Stage.COMPILE)], 1),
    ],
)
def test_the_best_turn(verdicts: list[Verdict], best: int | None) -> None:
    assert best_turn([turn(i, verdict) for i, verdict in enumerate(verdicts)]) == best
