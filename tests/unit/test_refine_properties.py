"""Properties of every episode, over random sequences of events that the state machine may see."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refine_pieces import CODE, OPENING, TASK, completion, failed, ok

from kb_ray.prompts.opening import prompt_hash
from kb_ray.records import STAGE_ORDER, Message, Stage, Status, StopReason, Turn, Verdict
from kb_ray.refine import (
    Answered,
    Ask,
    ContextExhausted,
    Finish,
    InfraFailed,
    Judged,
    ModelFailed,
    Policy,
    State,
    start,
    step,
)

STATUSES = [status for status in Status if status not in (Status.OK, Status.INFRA_ERROR)]
CORRECT = st.builds(ok, st.one_of(st.none(), st.floats(0.1, 5.0)), st.booleans())
WRONG = st.builds(failed, st.sampled_from(STATUSES), st.sampled_from(list(Stage)), st.integers(0, 4))
VERDICTS = st.one_of(CORRECT, WRONG, st.just(failed(Status.INFRA_ERROR)))
COMPLETIONS = st.builds(
    completion,
    st.sampled_from([f"```python\n{CODE}```", "No.", f"<think>\n{CODE}", f"<triton>{CODE}</triton>"]),
    st.sampled_from(["stop", "length"]),
)
ASKED = st.one_of(
    st.builds(Answered, completion=COMPLETIONS),
    st.builds(Answered, completion=COMPLETIONS),
    st.builds(ModelFailed, message=st.just("gone")),
    st.builds(ContextExhausted, message=st.just("long")),
)
EVALUATED = st.one_of(st.builds(Judged, verdict=VERDICTS), st.builds(InfraFailed, message=st.just("lost")))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), max_turns=st.integers(1, 5), target=st.floats(0.5, 3.0))
def test_every_episode_keeps_the_rules(data: st.DataObject, max_turns: int, target: float) -> None:
    state, action = start(TASK, OPENING, Policy(max_turns=max_turns, target_speedup=target))
    for _ in range(2 * max_turns + 1):
        if isinstance(action, Finish):
            break
        if isinstance(action, Ask):
            assert action.messages == state.messages
            assert action.messages[-1].role == "user"
        state, action = step(state, data.draw(ASKED if isinstance(action, Ask) else EVALUATED))
        assert [t.index for t in state.turns] == list(range(len(state.turns)))
    assert isinstance(action, Finish)
    assert len(state.turns) <= max_turns
    assert_messages_follow_turns(state)
    assert_reason_fits(state, action, max_turns, target)
    assert_best(state.turns, action.best_turn)
    with pytest.raises(ValueError, match="cannot happen"):
        step(state, data.draw(st.one_of(ASKED, EVALUATED)))


def assert_messages_follow_turns(state: State) -> None:
    expected = list(OPENING)
    for one in state.turns:
        assert one.prompt_hash == prompt_hash(expected)
        answer = one.completion
        expected.append(Message(role="assistant", content=answer.text, reasoning=answer.reasoning))
        if one.feedback_given is not None:
            expected.append(Message(role="user", content=one.feedback_given))
    assert list(state.messages) == expected
    assert all(one.feedback_given is not None for one in state.turns[:-1])


def assert_reason_fits(state: State, finish: Finish, max_turns: int, target: float) -> None:
    def succeeds(verdict: Verdict) -> bool:
        return verdict.correct and (verdict.speedup is None or (verdict.trusted and verdict.speedup >= target))

    assert not any(succeeds(one.verdict) for one in state.turns[:-1])
    assert all(one.verdict.status is not Status.INFRA_ERROR for one in state.turns)
    if finish.stop_reason in (StopReason.SUCCESS_FAST, StopReason.SUCCESS_UNTIMED):
        assert succeeds(state.turns[-1].verdict)
        assert (finish.stop_reason is StopReason.SUCCESS_FAST) == state.turns[-1].verdict.timed
    elif finish.stop_reason is StopReason.MAX_TURNS:
        assert len(state.turns) == max_turns
        assert not succeeds(state.turns[-1].verdict)
    else:
        assert finish.error


def assert_best(turns: tuple[Turn, ...], best: int | None) -> None:
    assert (best is None) == (not turns)
    if best is None:
        return
    verdicts = [one.verdict for one in turns]
    chosen = verdicts[best]
    trusted = [v.speedup or 0.0 for v in verdicts if v.correct and v.trusted]
    if trusted:
        assert chosen.correct
        assert chosen.trusted
        assert (chosen.speedup or 0.0) == max(trusted)
    elif any(v.correct for v in verdicts):
        assert best == next(i for i, v in enumerate(verdicts) if v.correct)
    else:
        assert all(
            (STAGE_ORDER[v.stage], v.tests_passed) <= (STAGE_ORDER[chosen.stage], chosen.tests_passed) for v in verdicts
        )
