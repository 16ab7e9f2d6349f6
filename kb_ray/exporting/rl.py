"""View `rl`: one answer a row, with the prompt it was given to, its verdict and its reward.

The reward is 0.3 for a correct kernel plus its trusted speedup, 0 for a wrong one (a hack included), and none where
the verdict may not be a reward: a failure of our own, an untrusted success, a CPU's verdict unless allowed.
Does not know files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kb_ray.exporting.answers import (
    ANSWER_COLUMNS,
    MESSAGES,
    RETRIEVED_COLUMN,
    TASK_COLUMNS,
    answer_columns,
    as_chat,
    prompt,
    retrieved_column,
    task_columns,
)
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.sieve import Sieve, flags_of
from kb_ray.records import Episode, Turn
from kb_ray.score.reward import RewardRule, reward
from kb_ray.tasks.quality import excluding
from kb_ray.traces.reading import Survey, read_episodes
from kb_ray.traces.schema import SCHEMA, episode_to_row

_TURN = SCHEMA.field("turns").type.value_type
_OF_TURN = ("reasoning", "finish_reason", "sampling", "token_ids", "logprobs", "policy_version", "verdict")
_OF_TASK = ("reference_code", "style", "entry_point", "init_convention", "input_shapes")


def schema(options: ExportOptions) -> pa.Schema:
    """Columns of the view; `verdict` as in the traces."""
    return pa.schema(
        {
            "prompt": MESSAGES,
            "prompt_exact": pa.bool_(),
            "completion": pa.string(),
            "triton_code": pa.string(),
            "reward": pa.float64(),
            **TASK_COLUMNS,
            **{name: SCHEMA.field(name).type for name in _OF_TASK},
            **ANSWER_COLUMNS,
            **{name: _TURN.field(name).type for name in _OF_TURN},
            **RETRIEVED_COLUMN,
        }
    )


def rows(found: Survey, options: ExportOptions, sieve: Sieve) -> Iterator[dict[str, Any]]:
    """One row for each turn."""
    for episode in filter(sieve.episode, read_episodes(found)):
        stored = None
        for turn in episode.turns:
            if sieve.answer(episode.task, turn.verdict) and sieve.novel(
                episode.task, turn.triton_code, correct=turn.verdict.correct
            ):
                stored = stored or episode_to_row(episode)
                row = _row(episode, turn, stored, options)
                if row["reward"] is None:
                    on_cpu = turn.verdict.env.device == "cpu" and not options.allow_untimed
                    sieve.count(
                        "rows without a reward" + (" (a CPU's verdicts: see --allow-untimed)" if on_cpu else "")
                    )
                yield row


def _row(episode: Episode, turn: Turn, stored: dict[str, Any], options: ExportOptions) -> dict[str, Any]:
    messages, exact = prompt(episode, turn.index)
    rule = RewardRule(scheme="kevin", allow_untimed=options.allow_untimed)
    in_store = stored["turns"][turn.index]
    return {
        "prompt": as_chat(messages, "drop"),
        "prompt_exact": exact,
        "completion": turn.completion.text,
        "triton_code": turn.triton_code,
        "reward": reward(turn.verdict, rule, flagged=bool(excluding(flags_of(episode.task, turn.verdict)))),
        **task_columns(episode.task, options.licenses),
        **{name: stored[name] for name in _OF_TASK},
        **answer_columns(episode, turn),
        **{name: in_store[name] for name in _OF_TURN},
        **retrieved_column(episode),
    }
