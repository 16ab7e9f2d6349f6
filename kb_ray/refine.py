"""The multi-turn state machine: (state, event) -> (state, action), and nothing else.

One episode is one chain of these steps. Pure: it asks for completions and evaluations by returning actions,
and learns of them by events; it has no clock, no retries and no knowledge of who carries the actions out.
Holds the rules of when an episode ends and which of its turns is the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from pydantic import Field

from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.extract import extract
from kb_ray.prompts.budget import Forms, Messages
from kb_ray.prompts.feedback import feedback
from kb_ray.prompts.opening import prompt_hash
from kb_ray.records import (
    STAGE_ORDER,
    Candidate,
    Completion,
    Episode,
    ErrorDetail,
    Message,
    NoCandidate,
    Record,
    Stage,
    Status,
    StopReason,
    Task,
    Turn,
    TurnTimes,
    Verdict,
)


class Policy(Record):
    """When an episode ends. A single-turn run is `max_turns=1`."""

    max_turns: int = Field(1, ge=1)
    target_speedup: float = 1.0
    """Speedup from which a correct, trusted kernel ends the episode."""
    ends_with_success: bool = True
    """Not so in training: where the policy decides how many turns there are, baselines by turn are biased."""
    n_correctness: int = Field(default=5, ge=1)
    """Input sets of a verification: what an answer without code is told that it passed none of."""


class Answered(Record):
    """The model answered the last `Ask`."""

    completion: Completion
    sent: tuple[Message, ...] | None = None
    """What was asked, where the conversation had to be shortened for it; None: all of it."""
    model_queue_s: float = 0.0
    """Seconds the request waited for its place."""
    model_s: float = 0.0
    """Seconds from sending to the whole answer."""
    policy_version: str | None = None


class ModelFailed(Record):
    """The model gave no answer, after the completer's own retries."""

    message: str


class ContextExhausted(Record):
    """The conversation no longer fits the model's window."""

    message: str


class Judged(Record):
    """The verdict on the last `Evaluate`."""

    verdict: Verdict
    bench_s: float = 0.0
    """Seconds from handing the candidate over to its verdict."""


class InfraFailed(Record):
    """No verdict could be reached, after retries elsewhere. Never the model's failure."""

    message: str


Event = Answered | ModelFailed | ContextExhausted | Judged | InfraFailed


class Ask(Record):
    """Have the model continue these messages."""

    messages: tuple[Message, ...]


class Evaluate(Record):
    """Have this code verified against the episode's task."""

    code: str


class Finish(Record):
    """The episode is over."""

    stop_reason: StopReason
    best_turn: int | None
    error: str | None = None
    """What failed, for model_error, context_exhausted and infra_error."""


Action = Ask | Evaluate | Finish


class State(Record):
    """Everything an episode knows of itself between two events."""

    task: Task
    policy: Policy
    messages: tuple[Message, ...]
    """The opening, then an answer and its feedback for each turn; answers without a verdict are not in it. Always
    whole: what is shortened is a request."""
    turns: tuple[Turn, ...] = ()
    phase: Literal["asking", "judging", "finished"] = "asking"
    answered: Answered | None = None
    """While judging: the answer whose candidate is being verified."""
    candidate: Candidate | None = None


def start(task: Task, opening: tuple[Message, ...], policy: Policy) -> tuple[State, Action]:
    """The state before the first answer, and the first question."""
    return State(task=task, policy=policy, messages=opening), Ask(messages=opening)


def step(state: State, event: Event) -> tuple[State, Action]:
    """The state after `event`, and what to do next.

    Raises ValueError for an event that cannot happen in this state, which is a mistake of the caller.
    """
    match state.phase, event:
        case "asking", Answered():
            return _answered(state, event)
        case "asking", ModelFailed():
            return _finish(state, StopReason.MODEL_ERROR, event.message)
        case "asking", ContextExhausted():
            return _finish(state, StopReason.CONTEXT, event.message)
        case "judging", Judged() if state.answered and event.verdict.status is not Status.INFRA_ERROR:
            return _judged(state, state.answered, event.verdict, event.bench_s)
        case "judging", Judged():
            error = event.verdict.error
            return _finish(state, StopReason.INFRA_ERROR, error.message if error else "the verifier failed")
        case "judging", InfraFailed():
            return _finish(state, StopReason.INFRA_ERROR, event.message)
    raise ValueError(f"{type(event).__name__} cannot happen while an episode is {state.phase}")


def best_turn(turns: Sequence[Turn]) -> int | None:
    """Index of the best turn: the trusted correct one of highest speedup, then the earliest correct; if none
    is correct, the one that got furthest by stage, then by tests passed. The earliest wins ties."""
    if not turns:
        return None
    return max(range(len(turns)), key=lambda i: (_merit(turns[i].verdict), -i))


def requests(state: State) -> Forms:
    """What may be sent for an `Ask`: the whole conversation first, then ever shorter forms of it."""
    return Forms(_opening(state.messages), state.turns, best_turn(state.turns))


def prompt_of(episode: Episode, index: int) -> Messages:
    """The messages that turn `index` was asked with, shortened as they then were: the form with the turn's hash.

    ValueError where no form has it, as in an episode of another version.
    """
    before = episode.turns[:index]
    for messages in Forms(_opening(episode.messages), before, best_turn(before)):
        if prompt_hash(messages) == episode.turns[index].prompt_hash:
            return messages
    raise ValueError(f"episode {episode.episode_id}: no form of the conversation has the hash of turn {index}")


def to_episode(
    state: State, finish: Finish, *, episode_id: str, run_id: str, sample: int, attempt: int, created_at: str
) -> Episode:
    """The record of a finished episode."""
    return Episode(
        episode_id=episode_id,
        run_id=run_id,
        task=state.task,
        sample=sample,
        attempt=attempt,
        turns=state.turns,
        stop_reason=finish.stop_reason,
        best_turn=finish.best_turn,
        messages=state.messages,
        error=finish.error,
        created_at=created_at,
    )


def _opening(messages: Messages) -> Messages:
    return tuple(takewhile(lambda message: message.role != "assistant", messages))


def _answered(state: State, event: Answered) -> tuple[State, Action]:
    found = extract(event.completion)
    if isinstance(found, NoCandidate):
        return _judged(state, event, _verdict_without_code(found), bench_s=0.0)
    judging = state.model_copy(update={"phase": "judging", "answered": event, "candidate": found})
    return judging, Evaluate(code=found.code)


def _judged(state: State, answered: Answered, verdict: Verdict, bench_s: float) -> tuple[State, Action]:
    """Records the turn, then ends the episode or sends the feedback."""
    success = _success(verdict, state.policy.target_speedup)
    last = len(state.turns) + 1 >= state.policy.max_turns
    code = state.candidate.code if state.candidate else None
    over = last or (success is not None and state.policy.ends_with_success)
    told = None if over else feedback(_as_told(verdict, state.policy), state.policy.target_speedup, code)
    turn = _turn(state, answered, verdict, bench_s, told)
    completion = answered.completion
    messages = [Message(role="assistant", content=completion.text, reasoning=completion.reasoning)]
    if told is not None:
        messages.append(Message(role="user", content=told))
    after = state.model_copy(
        update={
            "phase": "asking",
            "messages": (*state.messages, *messages),
            "turns": (*state.turns, turn),
            "answered": None,
            "candidate": None,
        }
    )
    if told is not None:
        return after, Ask(messages=after.messages)
    return _finish(after, success or StopReason.MAX_TURNS)


def _turn(state: State, answered: Answered, verdict: Verdict, bench_s: float, told: str | None) -> Turn:
    return Turn(
        index=len(state.turns),
        prompt_hash=prompt_hash(answered.sent or state.messages),
        completion=answered.completion,
        triton_code=state.candidate.code if state.candidate else None,
        extraction_rule=state.candidate.rule if state.candidate else None,
        feedback_given=told,
        verdict=verdict,
        times=TurnTimes(model_queue_s=answered.model_queue_s, model_s=answered.model_s, bench_s=bench_s),
        policy_version=answered.policy_version,
    )


def _success(verdict: Verdict, target_speedup: float) -> StopReason | None:
    """The stop reason a verdict leads to by itself. A speedup that cannot be trusted leads to none."""
    if not verdict.correct:
        return None
    if not verdict.timed or verdict.speedup is None:
        return StopReason.SUCCESS_UNTIMED
    fast = verdict.trusted and verdict.speedup >= target_speedup
    return StopReason.SUCCESS_FAST if fast else None


def _finish(state: State, reason: StopReason, error: str | None = None) -> tuple[State, Action]:
    over = state.model_copy(update={"phase": "finished", "answered": None, "candidate": None})
    return over, Finish(stop_reason=reason, best_turn=best_turn(state.turns), error=error)


def _verdict_without_code(found: NoCandidate) -> Verdict:
    status = Status(found.status)
    error = ErrorDetail(category=CATEGORY_BY_STATUS[status], message=found.reason)
    # Nothing about this verdict is uncertain: no code ran, so it is trusted.
    return Verdict.of(status, Stage.EXTRACT, trusted=True, error=error)


def _as_told(verdict: Verdict, policy: Policy) -> Verdict:
    """The verdict with the tests that were never begun, because there was no code, among those not passed."""
    if verdict.stage is not Stage.EXTRACT or verdict.tests_total:
        return verdict
    return verdict.model_copy(update={"tests_total": policy.n_correctness})


def _merit(verdict: Verdict) -> tuple[int, float, int]:
    """What turns are ranked by, higher being better."""
    if verdict.correct and verdict.trusted:
        return 3, verdict.speedup or 0.0, 0
    if verdict.correct:
        return 2, 0.0, 0
    return 1, STAGE_ORDER[verdict.stage], verdict.tests_passed
