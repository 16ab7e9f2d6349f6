"""View `raw`: whole episodes as they are in the store, with the licence of each program. Does not know files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kb_ray.exporting.licences import licence
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.sieve import Sieve
from kb_ray.records import Episode
from kb_ray.traces.reading import Survey, read_tables
from kb_ray.traces.schema import SCHEMA, row_to_episode


def schema(options: ExportOptions) -> pa.Schema:
    """The trace schema."""
    return SCHEMA


def rows(found: Survey, options: ExportOptions, sieve: Sieve) -> Iterator[dict[str, Any]]:
    """One row for each episode; filters on answers ask about its best turn."""
    for table in read_tables(found):
        for row in table.to_pylist():
            episode = row_to_episode(row)
            if sieve.episode(episode) and best_passes(episode, sieve):
                yield row | {"license": licence(episode.task.source, options.licenses, episode.task.license)}


def best_passes(episode: Episode, sieve: Sieve) -> bool:
    """Whether an episode's best turn passes; one without turns does where nothing is asked of answers."""
    if episode.best_turn is None:
        if sieve.asks_of_answers:
            sieve.count("episodes without an answer")
        return not sieve.asks_of_answers
    best = episode.turns[episode.best_turn]
    return sieve.answer(episode.task, best.verdict) and sieve.novel(
        episode.task, best.triton_code, correct=best.verdict.correct
    )
