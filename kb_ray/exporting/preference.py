"""View `preference`: two answers to one task a row, the better one chosen.

Reads the store twice, once for verdicts and once for the texts of the answers that were paired, which wait in a file
meanwhile: memory holds a few numbers for each answer. Which answers make a pair is `pairing`'s.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa

from kb_ray.exporting.answers import (
    RETRIEVED_COLUMN,
    TASK_COLUMNS,
    as_chat,
    messages_type,
    opening,
    prompt,
    reply,
    retrieved_column,
    task_columns,
)
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.pairing import Answer, Pair, pairs
from kb_ray.exporting.sieve import Sieve, sound, trusted_speedup
from kb_ray.records import STAGE_ORDER, Episode, Status, Turn
from kb_ray.traces.reading import Survey, read_file
from kb_ray.traces.schema import row_to_episode

_SIDES = ("chosen", "rejected")
_SIDE_COLUMNS: dict[str, pa.DataType] = {
    "episode_id": pa.string(),
    "turn": pa.int64(),
    "status": pa.string(),
    "speedup": pa.float64(),
    "triton_code": pa.string(),
}
Place = tuple[str, int, int]
"""File, row and turn of an answer."""


def schema(options: ExportOptions) -> pa.Schema:
    """Columns of the view."""
    messages = messages_type(options.reasoning)
    sides = {f"{side}_{name}": kind for side in _SIDES for name, kind in _SIDE_COLUMNS.items()}
    return pa.schema({"prompt": messages, "chosen": messages, "rejected": messages, "kind": pa.string(),
                      **TASK_COLUMNS, **sides, **RETRIEVED_COLUMN})  # fmt: skip


def rows(found: Survey, options: ExportOptions, sieve: Sieve) -> Iterator[dict[str, Any]]:
    """Up to `pairs_per_task` rows for each task (with `same_prompt` for each prompt), tasks as first met."""
    made = _pairs(found, options, sieve)
    with tempfile.TemporaryFile("w+b") as file:
        texts = _Texts(file)
        for episode, place, turn in _answers(_only(found, made)):
            texts.keep(place, _text(episode, turn, options))
        for pair in made:
            better, worse = texts.get(_place(pair.chosen)), texts.get(_place(pair.rejected))
            row = {"prompt": better["prompt"], "chosen": better["answer"], "rejected": worse["answer"]}
            sides = {f"{side}_{name}": text[name] for side, text in zip(_SIDES, (better, worse), strict=True)
                     for name in _SIDE_COLUMNS}  # fmt: skip
            yield row | {"kind": pair.kind} | better["task"] | sides | better["retrieved"]


def _pairs(found: Survey, options: ExportOptions, sieve: Sieve) -> list[Pair]:
    groups: dict[tuple[str, str], list[Answer]] = {}
    for episode, place, turn in _answers(found, sieve):
        verdict, right = turn.verdict, sound(episode.task, turn.verdict)
        if verdict.status is Status.INFRA_ERROR or (verdict.correct and not right):
            sieve.count("answers whose verdict cannot be relied on")
        elif sieve.answer(episode.task, verdict) and sieve.novel(episode.task, turn.triton_code, correct=right):
            progress = 1000 * STAGE_ORDER[verdict.stage] + verdict.tests_passed
            answer = Answer(*place, right, trusted_speedup(verdict), progress, hash(turn.completion.text) or 1)
            group = (episode.task.task_id, turn.prompt_hash if options.same_prompt else "")
            groups.setdefault(group, []).append(answer)
    made = [pairs(group, margin=options.margin, most=options.pairs_per_task) for group in groups.values()]
    return [pair for some in made for pair in some]


def _answers(found: Survey, sieve: Sieve | None = None) -> Iterator[tuple[Episode, Place, Turn]]:
    """Every turn of the episodes that count and pass the sieve, with its place."""
    for key, wanted in found.rows.items():
        numbers = iter(wanted)
        for table in read_file(found.store, key, wanted):
            for row in table.to_pylist():
                number, episode = next(numbers), row_to_episode(row)
                if sieve is None or sieve.episode(episode):
                    for turn in episode.turns:
                        yield episode, (key, number, turn.index), turn


def _only(found: Survey, made: Iterable[Pair]) -> Survey:
    """The survey of those episodes alone that are in a pair."""
    wanted: dict[str, set[int]] = {}
    for pair in made:
        for answer in (pair.chosen, pair.rejected):
            wanted.setdefault(answer.key, set()).add(answer.row)
    return replace(found, rows={key: tuple(sorted(wanted[key])) for key in found.rows if key in wanted})


def _place(answer: Answer) -> Place:
    return answer.key, answer.row, answer.turn


def _text(episode: Episode, turn: Turn, options: ExportOptions) -> dict[str, Any]:
    asked = prompt(episode, turn.index)[0] if options.same_prompt else opening(episode)
    return {
        "prompt": as_chat(asked, options.reasoning),
        "answer": as_chat([reply(turn)], options.reasoning),
        "task": task_columns(episode.task, options.licenses),
        "retrieved": retrieved_column(episode),
        "episode_id": episode.episode_id,
        "turn": turn.index,
        "status": str(turn.verdict.status),
        "speedup": turn.verdict.speedup,
        "triton_code": turn.triton_code,
    }


class _Texts:
    """JSON by place, in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._spans: dict[Place, tuple[int, int]] = {}

    def keep(self, place: Place, text: dict[str, Any]) -> None:
        data = json.dumps(text).encode()
        self._spans[place] = (self._file.seek(0, 2), len(data))
        self._file.write(data)

    def get(self, place: Place) -> dict[str, Any]:
        start, size = self._spans[place]
        self._file.seek(start)
        text: dict[str, Any] = json.loads(self._file.read(size))
        return text
