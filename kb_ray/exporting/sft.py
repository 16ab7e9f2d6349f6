"""View `sft`: one conversation a row, ending in an answer worth imitating.

Chooses among the turns of an episode; what the filters say is the sieve's. Does not know files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kb_ray.exporting.answers import (
    ANSWER_COLUMNS,
    RETRIEVED_COLUMN,
    TASK_COLUMNS,
    answer_columns,
    as_chat,
    messages_type,
    opening,
    reply,
    retrieved_column,
    task_columns,
    through,
)
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.sieve import Sieve, sound, trusted_speedup
from kb_ray.records import Episode, Turn
from kb_ray.traces.reading import Survey, read_episodes


def schema(options: ExportOptions) -> pa.Schema:
    """Columns of the view."""
    messages = {"messages": messages_type(options.reasoning)}
    return pa.schema({**messages, **TASK_COLUMNS, **ANSWER_COLUMNS, **RETRIEVED_COLUMN})


def rows(found: Survey, options: ExportOptions, sieve: Sieve) -> Iterator[dict[str, Any]]:
    """At most one row for each episode: its best answer that was asked for, with what led to it."""
    for episode in filter(sieve.episode, read_episodes(found)):
        turn = chosen(episode, options)
        if turn is None:
            sieve.count(f"--keep {options.keep}")
        elif sieve.answer(episode.task, turn.verdict) and sieve.novel(
            episode.task, turn.triton_code, correct=turn.verdict.correct
        ):
            yield _row(episode, turn, options)


def chosen(episode: Episode, options: ExportOptions) -> Turn | None:
    """The turn to imitate: the best, where it is what `keep` asks for; the last turn for `all`.

    The best is the fastest sound one, then the earliest sound one.
    """
    if not episode.turns:
        return None
    if options.keep == "all":
        return episode.turns[-1]
    if options.keep == "best":
        return episode.turns[episode.best_turn] if episode.best_turn is not None else None
    able = [turn for turn in episode.turns if sound(episode.task, turn.verdict)]
    if options.keep == "fast":
        able = [turn for turn in able if (trusted_speedup(turn.verdict) or 0.0) >= options.target_speedup]
    return max(able, key=lambda turn: (trusted_speedup(turn.verdict) or 0.0, -turn.index), default=None)


def _row(episode: Episode, turn: Turn, options: ExportOptions) -> dict[str, Any]:
    whole = options.conversation == "whole"
    messages = through(episode, turn.index) if whole else (*opening(episode), reply(turn))
    return {
        "messages": as_chat(messages, options.reasoning),
        **task_columns(episode.task, options.licenses),
        **answer_columns(episode, turn),
        **retrieved_column(episode),
    }
