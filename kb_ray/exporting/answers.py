"""One answer of an episode, in the words that training data use: its conversation, and where it comes from.

Chooses nothing. Messages are dictionaries with `role` and `content`, as chat templates take them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kb_ray.exporting.licences import licence
from kb_ray.exporting.options import Reasoning
from kb_ray.exporting.sieve import flags_of
from kb_ray.records import Episode, Message, Task, Turn
from kb_ray.refine import prompt_of
from kb_ray.traces.schema import SCHEMA

MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
MESSAGES_WITH_REASONING = pa.list_(
    pa.struct({"role": pa.string(), "content": pa.string(), "reasoning_content": pa.string()})
)

TASK_COLUMNS: dict[str, pa.DataType] = {
    "task_id": pa.string(),
    "source": pa.string(),
    "license": pa.string(),
    "level": pa.int64(),
    "name": pa.string(),
    "problem_id": pa.int64(),
    "uuid": pa.string(),
}
ANSWER_COLUMNS: dict[str, pa.DataType] = {
    "episode_id": pa.string(),
    "sample": pa.int64(),
    "attempt": pa.int64(),
    "turn": pa.int64(),
    "model": pa.string(),
    "status": pa.string(),
    "correct": pa.bool_(),
    "trusted": pa.bool_(),
    "speedup": pa.float64(),
    "fast_1": pa.bool_(),
    "fast_2": pa.bool_(),
    "flags": pa.list_(pa.string()),
    "gpu": pa.string(),
    "verifier_version": pa.string(),
}


RETRIEVED_COLUMN: dict[str, pa.DataType] = {"retrieved": SCHEMA.field("retrieved").type}
"""The examples that the messages show, as in the traces."""


def messages_type(reasoning: Reasoning) -> pa.DataType:
    """Type of a column of messages; every row of an export has the same."""
    return MESSAGES_WITH_REASONING if reasoning == "field" else MESSAGES


def task_columns(task: Task, known_licences: Mapping[str, str]) -> dict[str, Any]:
    """What identifies a task, and the licence of its program."""
    row = {name: getattr(task, name) for name in TASK_COLUMNS if name != "license"}
    return row | {"license": licence(task.source, known_licences, task.license)}


def answer_columns(episode: Episode, turn: Turn) -> dict[str, Any]:
    """Where an answer comes from and what it was worth."""
    verdict = turn.verdict
    return {
        "episode_id": episode.episode_id,
        "sample": episode.sample,
        "attempt": episode.attempt,
        "turn": turn.index,
        "model": turn.completion.model,
        "status": str(verdict.status),
        "correct": verdict.correct,
        "trusted": verdict.trusted,
        "speedup": verdict.speedup,
        "fast_1": verdict.fast_1,
        "fast_2": verdict.fast_2,
        "flags": sorted(flags_of(episode.task, verdict)),
        "gpu": verdict.env.gpu,
        "verifier_version": verdict.verifier_version,
    }


def retrieved_column(episode: Episode) -> dict[str, Any]:
    """Which examples the opening prompt shows; None where it shows none."""
    return {"retrieved": episode.retrieved.model_dump() if episode.retrieved else None}


def as_chat(messages: Sequence[Message], reasoning: Reasoning) -> list[dict[str, Any]]:
    """Messages as dictionaries, the assistant's reasoning where it was asked to be."""
    return [_as_chat(message, reasoning) for message in messages]


def opening(episode: Episode) -> tuple[Message, ...]:
    """The messages before the first answer."""
    first = next((i for i, message in enumerate(episode.messages) if message.role == "assistant"), None)
    return episode.messages[:first]


def through(episode: Episode, turn: int) -> tuple[Message, ...]:
    """The conversation up to the answer of this turn, that included. Every turn has one assistant message."""
    answers = list(_positions(episode))
    if turn >= len(answers):
        return (*episode.messages, reply(episode.turns[turn]))
    return episode.messages[: answers[turn] + 1]


def reply(turn: Turn) -> Message:
    """A turn's answer as a message."""
    return Message(role="assistant", content=turn.completion.text, reasoning=turn.completion.reasoning)


def prompt(episode: Episode, turn: int) -> tuple[tuple[Message, ...], bool]:
    """What this turn was asked with, and whether that is known to the letter (by its hash)."""
    try:
        return prompt_of(episode, turn), True
    except ValueError:
        return through(episode, turn)[:-1], False


def _positions(episode: Episode) -> Iterator[int]:
    return (i for i, message in enumerate(episode.messages) if message.role == "assistant")


def _as_chat(message: Message, reasoning: Reasoning) -> dict[str, Any]:
    content = message.content
    thought = message.reasoning if message.role == "assistant" else None
    if reasoning == "inline" and thought:
        content = f"<think>\n{thought.strip()}\n</think>\n\n{content}"
    shown = {"role": str(message.role), "content": content}
    return shown | {"reasoning_content": thought} if reasoning == "field" else shown
