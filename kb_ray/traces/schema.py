"""The Parquet form of an episode: one row with nested turns.

`row_to_episode(episode_to_row(e)) == e` for every Episode, also after the row has been through a file. Knows
nothing of where the bytes go.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from kb_ray.errors import ConfigError, StoreError
from kb_ray.records import (
    Completion,
    Episode,
    Message,
    Retrieved,
    Status,
    Task,
    TensorSpec,
    Turn,
    Verdict,
    validity,
)
from kb_ray.traces.columns import OUTCOME, SCHEMA, SCHEMA_VERSION, VERSION_KEY

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "check_version",
    "conform",
    "encode",
    "episode_to_row",
    "fault",
    "row_to_episode",
    "table_bytes",
    "table_of",
]

# Only what readers select on gets min/max statistics: for a hundred leaf columns they would outweigh a part.
_STATISTICS = ["episode_id", "task_id", "sample", "attempt", "stop_reason"]

# Readers hold a row group at a time: at 50 to 200 kB an episode this stays around 100 MB.
_ROW_GROUP_ROWS = 500

_TASK_COLUMNS = tuple(Task.model_fields)
_EPISODE_COLUMNS = (
    "episode_id",
    "run_id",
    "sample",
    "attempt",
    "stop_reason",
    "best_turn",
    "error",
    "created_at",
)


def episode_to_row(episode: Episode) -> dict[str, Any]:
    """One row of SCHEMA. num_turns, correct, final_triton_code and final_result repeat what is nested."""
    turns = episode.turns
    best = turns[episode.best_turn] if episode.best_turn is not None else None
    row = {name: getattr(episode, name) for name in _EPISODE_COLUMNS}
    row |= {name: getattr(episode.task, name) for name in _TASK_COLUMNS}
    row["input_shapes"] = _shapes_to_json(episode.task.input_shapes)
    row["turns"] = [_turn_to_row(turn) for turn in turns]
    row["retrieved"] = episode.retrieved.model_dump() if episode.retrieved else None
    row["messages"] = [message.model_dump() for message in episode.messages]
    row["num_turns"] = len(turns)
    row["correct"] = any(turn.verdict.correct for turn in turns)
    row["final_triton_code"] = best.triton_code if best else None
    row["final_result"] = _final_result(best.verdict) if best else None
    return row


def row_to_episode(row: dict[str, Any]) -> Episode:
    """The Episode of a row, as `Table.to_pylist()` or `episode_to_row` give it."""
    task = {name: row[name] for name in _TASK_COLUMNS}
    # Null in files that are older than the column.
    task |= {"input_shapes": _shapes_of(row["input_shapes"]), "flags": row["flags"] or ()}
    return Episode(
        **{name: row[name] for name in _EPISODE_COLUMNS},
        task=Task.model_validate(task),
        turns=tuple(_row_to_turn(turn) for turn in row["turns"]),
        messages=tuple(Message.model_validate(message) for message in row["messages"]),
        retrieved=Retrieved.model_validate(row["retrieved"]) if row.get("retrieved") else None,
    )


def fault(row: dict[str, Any]) -> str | None:
    """Why a row, as `Table.to_pylist()` gives it, is no Episode that can be, in one line; None where it is one."""
    try:
        return impossible(row_to_episode(row))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"a column is null or of another kind ({' '.join(str(error).split())[:100]})"


def impossible(episode: Episode) -> str | None:
    """The first of what cannot be in an episode, with its name, in words; None where there is nothing."""
    odd = next(impossibilities(episode), None)
    return None if odd is None else f"{episode.task.task_id}, sample {episode.sample}: {odd[1]}"


def impossibilities(episode: Episode) -> Iterator[tuple[Literal["row", "turns", "verdict"], str]]:
    """(what it is about, in words) of all that no run writes and that would end or spoil what readers make of it.

    The one place of these rules: readers refuse such a row, and the check of a store names each.
    """
    best, turns = episode.best_turn, len(episode.turns)
    if best is not None and not 0 <= best < turns:
        yield "turns", f"best_turn is {best}, of {turns} turns"
    for number, turn in enumerate(episode.turns):
        verdict = turn.verdict
        if turn.index != number:
            yield "turns", f"turn {number} has the number {turn.index}"
        if verdict.trusted and verdict.speedup is not None and not 0 < verdict.speedup < math.inf:
            yield "row", f"a trusted speedup of {verdict.speedup:g}"
        if not all(map(math.isfinite, verdict.seconds.values())):
            yield "row", f"a phase of turn {number} that took no finite time"
        yield from (("verdict", f"turn {number}: {what}") for what in _contradictions(verdict))


def _contradictions(verdict: Verdict) -> Iterator[str]:
    """Fields that `Verdict.of` and the bench never give together."""
    passed, total, speedup, good = verdict.tests_passed, verdict.tests_total, verdict.speedup, verdict.correct
    if (verdict.valid, verdict.compiled, good) != validity(verdict.status, verdict.stage):
        yield f"valid, compiled, correct do not follow from {verdict.status} at {verdict.stage}"
    if verdict.fast_0 != good:
        yield "fast_0 is not correct"
    fast = (None, None) if speedup is None else (good and speedup > 1.0, good and speedup >= 2.0)
    if (verdict.fast_1, verdict.fast_2) != fast:
        yield f"fast_1 or fast_2 do not follow from {'no speedup' if speedup is None else f'a speedup of {speedup:g}'}"
    if verdict.timed != (speedup is not None):
        yield "timed, without a speedup" if verdict.timed else f"a speedup of {speedup:g}, not timed"
    if not 0 <= passed <= total or (verdict.status is Status.OK and passed != total):
        yield f"{verdict.status} with {passed} of {total} tests passed"
    if verdict.status is Status.OK and verdict.error is not None:
        yield f"ok with an error: {verdict.error.category}"
    if verdict.trusted and verdict.env.device == "cpu":
        yield "trusted, though reached on a CPU"


def table_of(episodes: Sequence[Episode]) -> pa.Table:
    """A table of SCHEMA, one row per episode in order. StoreError where a number does not fit 64 bits."""
    rows = [episode_to_row(episode) for episode in episodes]
    try:
        return pa.Table.from_pylist(rows, schema=SCHEMA)
    except UnicodeEncodeError:
        # A model can emit half of a surrogate pair; no UTF-8 file can hold it, and one must not stop a run.
        return pa.Table.from_pylist(_encodable(rows), schema=SCHEMA)
    except (pa.ArrowInvalid, OverflowError) as error:
        ids = ", ".join(episode.episode_id for episode in episodes[:3])
        raise StoreError(f"episodes {ids}... do not fit the trace schema: {error}") from error


def table_bytes(episodes: Sequence[Episode]) -> bytes:
    """A whole Parquet file of these episodes, in memory."""
    return encode(table_of(episodes))


def encode(table: pa.Table) -> bytes:
    """A whole Parquet file (zstd) of a table of SCHEMA; every file of a trace store is made here."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", row_group_size=_ROW_GROUP_ROWS, write_statistics=_STATISTICS)
    return sink.getvalue()


def conform(table: pa.Table, columns: Sequence[str] = tuple(SCHEMA.names)) -> pa.Table:
    """`table`, of this or an older version, with these columns of SCHEMA: what it lacked is null.

    ArrowException where its values are of another kind.
    """
    schema = pa.schema([SCHEMA.field(name) for name in columns], SCHEMA.metadata)
    if table.schema.equals(schema):
        return table.replace_schema_metadata(SCHEMA.metadata)
    return pa.Table.from_pylist(table.to_pylist(), schema=schema)


def check_version(schema: pa.Schema) -> None:
    """StoreError where a file was written by a newer kb_ray, whose columns this one would drop.

    ArrowInvalid, as for any damage that Arrow sees itself, where the version is no number.
    """
    written = (schema.metadata or {}).get(VERSION_KEY, b"0")
    if not written.isdigit():
        raise pa.ArrowInvalid(f"its schema version is {written[:20]!r}")
    version = int(written)
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"traces have schema version {version}, this kb_ray reads up to {SCHEMA_VERSION}: upgrade kb_ray"
        )


def must_be_known(schema: pa.Schema, where: str) -> None:
    """ConfigError, as for what was named wrongly, where a newer kb_ray wrote the file at `where`."""
    try:
        check_version(schema)
    except StoreError as error:
        raise ConfigError(f"{where}: {error}") from error


def _turn_to_row(turn: Turn) -> dict[str, Any]:
    completion = turn.completion.model_dump()
    completion["completion"] = completion.pop("text")
    return {
        "turn": turn.index,
        "prompt_hash": turn.prompt_hash,
        **completion,
        "triton_code": turn.triton_code,
        "extraction_rule": turn.extraction_rule,
        "feedback_given": turn.feedback_given,
        "verdict": _verdict_to_row(turn.verdict),
        "times": turn.times.model_dump(),
        "policy_version": turn.policy_version,
    }


def _row_to_turn(row: dict[str, Any]) -> Turn:
    rest = dict(row)
    completion = {name: rest.pop(name) for name in Completion.model_fields if name != "text"}
    completion["text"] = rest.pop("completion")
    rest["index"] = rest.pop("turn")
    rest["verdict"] = _row_to_verdict(rest["verdict"])
    return Turn(completion=Completion.model_validate(completion), **rest)


def _verdict_to_row(verdict: Verdict) -> dict[str, Any]:
    row = verdict.model_dump()
    row["seconds"] = [{"phase": phase, "seconds": s} for phase, s in verdict.seconds.items()]
    ops = [{"name": name, "count": count} for name, count in verdict.evidence.torch_ops.items()]
    tried = [{"name": name, "status": status} for name, status in verdict.evidence.generalises.items()]
    return row | {"evidence": row["evidence"] | {"torch_ops": ops, "generalises": tried}}


def _row_to_verdict(row: dict[str, Any]) -> Verdict:
    seconds = {pair["phase"]: pair["seconds"] for pair in row["seconds"]}
    ops = {pair["name"]: pair["count"] for pair in row["evidence"]["torch_ops"]}
    tried = {pair["name"]: pair["status"] for pair in row["evidence"].get("generalises") or ()}
    evidence = row["evidence"] | {"torch_ops": ops, "generalises": tried}
    return Verdict.model_validate(row | {"seconds": seconds, "evidence": evidence})


def _final_result(verdict: Verdict) -> dict[str, Any]:
    result = {name: getattr(verdict, name) for name in OUTCOME}
    result["kernel_ms"] = verdict.kernel_time.median_ms if verdict.kernel_time else None
    result["reference_ms"] = verdict.reference_time.median_ms if verdict.reference_time else None
    result["error_category"] = verdict.error.category if verdict.error else None
    result["error_message"] = verdict.error.message if verdict.error else None
    return result


def _shapes_to_json(shapes: dict[str, TensorSpec] | None) -> str | None:
    if shapes is None:
        return None
    return json.dumps({name: spec.model_dump() for name, spec in shapes.items()})


def _shapes_of(text: str | None) -> dict[str, TensorSpec] | None:
    if text is None:
        return None
    return {name: TensorSpec.model_validate(spec) for name, spec in json.loads(text).items()}


def _encodable(value: Any) -> Any:
    """`value` with each lone surrogate as U+FFFD."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value)
    if isinstance(value, dict):
        return {key: _encodable(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(v) for v in value]
    return value
