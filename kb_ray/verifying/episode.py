"""What must hold within one episode, whatever the rest of the store says (pure).

Turns, verdicts, messages and numbers that are stored twice are compared with each other. Where the episode was written
with this very wording, it is also played again through the state machine: from its answers and verdicts must follow
the same code, the same feedback and the same end. Does not know files, other episodes or plans.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from kb_ray.prompts.feedback import category_of
from kb_ray.prompts.opening import prompt_hash
from kb_ray.records import Episode, Message, Status, StopReason, Turn
from kb_ray.refine import Answered, Evaluate, Finish, Judged, Policy, best_turn, prompt_of, start, step
from kb_ray.traces.run import episode_id
from kb_ray.traces.schema import episode_to_row, impossibilities
from kb_ray.verifying.findings import REPLACED, Found, Kind
from kb_ray.verifying.judging import turn_faults
from kb_ray.verifying.rules import Rules

_REPEATED = ("num_turns", "correct", "final_triton_code", "final_result")
_UNDECIDED = frozenset({StopReason.CONTEXT, StopReason.MODEL_ERROR, StopReason.INFRA_ERROR})
_ROUNDING = 1e-4
"""How far above 0 the logarithm of a probability of 1 may come out."""


def faults_of(episode: Episode, rules: Rules, row: dict[str, Any] | None = None) -> Iterator[Found]:
    """What is wrong within the episode, and with the columns of its `row` that repeat it; nothing where it is sound."""
    yield from impossibilities(episode)
    best = episode.best_turn
    if row is not None and (best is None or 0 <= best < len(episode.turns)):
        yield from _columns(episode, row)
    yield from _numbers(episode)
    yield from _identity(episode, rules)
    yield from _turns(episode, rules)
    yield from turn_faults(episode, rules)
    yield from _messages(episode)
    yield from _prompts(episode)
    yield from _retrieved(episode, rules)
    infra = any(turn.verdict.status is Status.INFRA_ERROR for turn in episode.turns)
    if rules.same_wording:
        yield from _reference(episode)
    if rules.same_wording and not rules.rejudged and not infra:
        yield from _played_again(episode, rules)
    elif not rules.rejudged:
        yield from _categories(episode, rules)


def _columns(episode: Episode, row: dict[str, Any]) -> Iterator[Found]:
    made = episode_to_row(episode)
    for name in _REPEATED:
        if _plain(row.get(name)) != _plain(made[name]):
            yield "columns", f"{name} is not what the turns say"


def _plain(value: Any) -> str:
    # As text: NaN equals itself there.
    return json.dumps(value, sort_keys=True, default=str)


def _numbers(episode: Episode) -> Iterator[Found]:
    if episode.sample < 0:
        yield "row", f"sample is {episode.sample}: samples count from 0"
    try:
        offset = datetime.fromisoformat(episode.created_at).utcoffset()
    except ValueError:
        offset = None
    if offset != timedelta(0):
        yield "row", f"created_at is {episode.created_at[:40]!r}: no time in UTC"
    for turn in episode.turns:
        yield from (("row", f"turn {turn.index}: {what}") for what in _amounts(turn))


def _amounts(turn: Turn) -> Iterator[str]:
    """Amounts that nothing can take, and lists that belong together and do not fit."""
    answer, verdict = turn.completion, turn.verdict
    seconds = {"latency_s": answer.latency_s, **turn.times.model_dump(), **verdict.seconds}
    yield from (f"{name} is {value:g} s" for name, value in seconds.items() if not 0 <= value < math.inf)
    counts = {**answer.usage.model_dump(), "kernel_launches": verdict.evidence.kernel_launches}
    yield from (f"{name} is {count}" for name, count in counts.items() if (count or 0) < 0)
    low, high = verdict.speedup_low, verdict.speedup_high
    if low is not None and high is not None and not low <= high:
        yield f"its speedup's interval goes from {low:g} to {high:g}"
    if answer.logprobs is None:
        return
    if len(answer.logprobs) != len(answer.token_ids or ()):
        yield f"{len(answer.logprobs)} log-probabilities of {len(answer.token_ids or ())} tokens"
    if not all(-math.inf <= value <= _ROUNDING for value in answer.logprobs):
        yield "a log-probability above 0, or that is no number"


def _identity(episode: Episode, rules: Rules) -> Iterator[Found]:
    if rules.run_id is not None and episode.run_id != rules.run_id:
        yield "identity", f"run_id is {episode.run_id}, the store's run is {rules.run_id}"
    if rules.fingerprint is not None:
        expected = episode_id(episode.task.task_id, episode.sample, episode.attempt, rules.fingerprint)
        if episode.episode_id != expected:
            yield "identity", f"episode_id is {episode.episode_id}, of this run it would be {expected}"


def _turns(episode: Episode, rules: Rules) -> Iterator[Found]:
    turns, best, right = len(episode.turns), episode.best_turn, best_turn(episode.turns)
    if rules.policy is not None and turns > rules.policy.max_turns:
        yield "turns", f"{turns} turns, the run allows {rules.policy.max_turns}"
    if episode.error is not None and episode.stop_reason not in _UNDECIDED:
        yield "stop", f"it has an error, and stop_reason is {episode.stop_reason}"
    if best != right and (best is None or 0 <= best < turns):
        yield "turns", f"best_turn is {best}, by its verdicts it is {right}"


def _reference(episode: Episode) -> Iterator[Found]:
    """Every template shows the program in its user's part, as it is."""
    code, asked = episode.task.reference_code.strip("\n"), _opening(episode)
    if asked and REPLACED not in code and code not in asked[-1].content:
        yield "task", "its reference program is not the one that the opening message shows"


def _messages(episode: Episode) -> Iterator[Found]:
    opening = _opening(episode)
    said = episode.messages[len(opening) :]
    if not opening or opening[-1].role != "user":
        yield "messages", "no user message opens the conversation"
    expected: list[Message] = []
    for turn in episode.turns:
        answer = turn.completion
        expected.append(Message(role="assistant", content=answer.text, reasoning=answer.reasoning))
        if turn.feedback_given is not None:
            expected.append(Message(role="user", content=turn.feedback_given))
        elif turn is not episode.turns[-1]:
            yield "feedback", f"turn {turn.index} gave no feedback, yet another turn follows"
    if len(said) != len(expected):
        yield "messages", f"{len(said)} messages follow the opening, {len(episode.turns)} turns make {len(expected)}"
    for number, (one, other) in enumerate(zip(said, expected, strict=False), len(opening)):
        if one != other:
            kind: Kind = "messages" if other.role == "assistant" else "feedback"
            whose = "the turn's answer" if other.role == "assistant" else "the feedback that the verdict led to"
            yield kind, f"message {number} ({one.role}) is not {whose}"


def _opening(episode: Episode) -> tuple[Message, ...]:
    return tuple(takewhile(lambda message: message.role != "assistant", episode.messages))


def _prompts(episode: Episode) -> Iterator[Found]:
    if any(REPLACED in message.content for message in episode.messages):
        return
    for place in range(len(episode.turns)):
        try:
            prompt_of(episode, place)
        except ValueError:
            whole = prompt_hash(_opening(episode)) if place == 0 else "that of no form of the conversation"
            yield "prompt", f"turn {place}: prompt_hash {episode.turns[place].prompt_hash} is not {whole}"


def _retrieved(episode: Episode, rules: Rules) -> Iterator[Found]:
    if rules.index is None:
        return
    index = episode.retrieved.index if episode.retrieved else ""
    if index != rules.index:
        yield "retrieved", f"examples are from index {index or 'none'}, the run's is {rules.index or 'none'}"


def _categories(episode: Episode, rules: Rules) -> Iterator[Found]:
    """By another version's wording only the heading can be known."""
    for turn in episode.turns:
        if turn.feedback_given is None or turn.verdict.status is Status.INFRA_ERROR:
            continue
        if turn.verdict.correct and rules.policy is None:
            continue
        category = category_of(turn.verdict, rules.policy.target_speedup if rules.policy else 1.0)
        if category not in turn.feedback_given:
            yield "feedback", f"turn {turn.index}: its feedback does not say {category}"


def _played_again(episode: Episode, rules: Rules) -> Iterator[Found]:
    many = Policy(max_turns=len(episode.turns) + 1, ends_with_success=False)
    state, action = start(episode.task, _opening(episode), rules.policy or many)
    for turn in episode.turns:
        if isinstance(action, Finish):
            yield "stop", f"turn {turn.index} follows, though the one before ended it with {action.stop_reason}"
            return
        state, action = step(state, Answered(completion=turn.completion))
        code, rule = (state.candidate.code, state.candidate.rule) if state.candidate else (None, None)
        if (code, rule) != (turn.triton_code, turn.extraction_rule):
            yield "code", f"turn {turn.index}: its code is not what is found in the answer"
        if isinstance(action, Evaluate):
            state, action = step(state, Judged(verdict=turn.verdict))
        elif state.turns[-1].verdict != turn.verdict:
            yield "verdict", f"turn {turn.index}: no code is in the answer, and the verdict is {turn.verdict.status}"
        if rules.policy is not None:
            yield from _feedback(turn, state.turns[-1].feedback_given)
    if rules.policy is not None:
        yield from _end(episode, action)
    if rules.policy is None:
        yield from _categories(episode, rules)


def _feedback(turn: Turn, expected: str | None) -> Iterator[Found]:
    if turn.feedback_given != expected:
        yield "feedback", f"turn {turn.index}: its feedback is not what its verdict leads to"


def _end(episode: Episode, action: object) -> Iterator[Found]:
    reason = episode.stop_reason
    if isinstance(action, Finish) and reason is not action.stop_reason:
        yield "stop", f"stop_reason is {reason}, its last verdict makes it {action.stop_reason}"
    if not isinstance(action, Finish) and reason not in _UNDECIDED:
        yield "stop", f"stop_reason is {reason} after {len(episode.turns)} turns that do not end it"
