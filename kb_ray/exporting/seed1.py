"""View `seed1`: traces in the JSON of KernelBench Triton's orchestrator, for the scripts that read it.

A run of several turns gives that program's multi-turn records, a run of one turn its single-turn ones. There every
number is a number: a speedup that was not measured is 0.0. Does not know files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from kb_ray.evaluation import origins
from kb_ray.exporting.answers import as_chat, retrieved_column, task_columns, through
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.raw import best_passes
from kb_ray.exporting.sieve import Sieve
from kb_ray.records import Episode, StopReason, Task, Turn, Verdict
from kb_ray.traces.reading import Survey, read_episodes, read_tables
from kb_ray.traces.run import read_run

FILE = "reasoning_traces.json"
MULTI_TURN_FILE = "reasoning_traces_multiturn.json"

_STOP_REASONS = {StopReason.SUCCESS_FAST: "success_fast", StopReason.MAX_TURNS: "max_turns_reached"}
_NO_CODE, _NO_CODE_IN_TURN = "Triton extraction failed", "Triton code extraction failed"


def is_multi_turn(found: Survey) -> bool:
    """Whether the store's run had several turns an episode; so it is taken where the run is not known."""
    run = read_run(found.store)
    return run is None or origins.is_multi_turn(run)


def rows(found: Survey, options: ExportOptions, sieve: Sieve) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(record, what the card counts of it) for each episode with an answer."""
    make = multi_turn_record if is_multi_turn(found) else single_turn_record
    shared = _shared_keys(found)
    for episode in filter(sieve.episode, read_episodes(found)):
        if not episode.turns:
            sieve.count("episodes without an answer")
        elif best_passes(episode, sieve):
            record = make(episode, _key(episode.task, episode.sample, shared))
            yield record, _counted(episode, options)


def _counted(episode: Episode, options: ExportOptions) -> dict[str, Any]:
    """That format's own keys tell neither the task of a further sample nor who answered."""
    model = {"model": episode.turns[-1].completion.model}
    return task_columns(episode.task, options.licenses) | model | retrieved_column(episode)


def multi_turn_record(episode: Episode, key: str) -> dict[str, Any]:
    """A finished dialogue. `final_*` are the last turn's there, and `full_messages` ends before its answer."""
    last = episode.turns[-1]
    return {
        **_head(episode, key),
        "num_turns": len(episode.turns),
        "stop_reason": _STOP_REASONS.get(episode.stop_reason, str(episode.stop_reason)),
        "final_triton_code": last.triton_code,
        "final_result": _measured(episode, last),
        "turns": [_turn(episode, turn) for turn in episode.turns],
        "full_messages": as_chat(through(episode, last.index)[:-1], "drop"),
        "timestamp": episode.created_at,
    }


def single_turn_record(episode: Episode, key: str) -> dict[str, Any]:
    """One answer; one without code is kept in the short form that the first document's program gives it."""
    turn = episode.turns[0]
    completion = turn.completion
    if turn.triton_code is None:
        return {
            "sample_key": key,
            "error": _NO_CODE,
            "full_completion": completion.text,
            "model_reasoning": completion.reasoning,
        }
    return {
        **_head(episode, key),
        "reasoning": completion.reasoning,
        "triton_code": turn.triton_code,
        "full_completion": completion.text,
        "result": _result(turn.verdict),
        "timestamp": episode.created_at,
    }


def sample_key(task: Task, sample: int) -> str:
    """`kernelbench_80`, `kernelbook_1174`; further samples of a task end in `_s1`, `_s2`, ..."""
    return _short(task.task_id, task.source, task.name, task.problem_id, sample)


def _short(task_id: str, source: str, name: str, problem_id: int | None, sample: int) -> str:
    inner: str | int = name
    if source == "kernelbench" and problem_id is not None:
        inner = problem_id
    elif source == "kernelbook":
        inner = task_id.rpartition("/")[2]
    return f"{source}_{inner}_s{sample}" if sample else f"{source}_{inner}"


def _shared_keys(found: Survey) -> frozenset[str]:
    """Keys that several episodes of the store would have: problem 19 of two levels, files of one name."""
    count: Counter[str] = Counter()
    for table in read_tables(found, ("task_id", "source", "name", "problem_id", "sample")):
        count.update(_short(**row) for row in table.to_pylist())
    return frozenset(key for key, times in count.items() if times > 1)


def _key(task: Task, sample: int, shared: Collection[str]) -> str:
    """The key as that program makes it, or the whole task id where it would not be the only one of its kind."""
    key = sample_key(task, sample)
    return f"{task.task_id}#{sample}" if key in shared else key


def _head(episode: Episode, key: str) -> dict[str, Any]:
    task = episode.task
    # That program knows neither names nor levels of KernelBook's rows.
    named = task.source != "kernelbook"
    return {
        "sample_key": key,
        "source": task.source,
        "level": task.level if named else None,
        "name": task.name if named else None,
        "problem_id": task.problem_id if named else None,
        "pytorch_code": task.reference_code,
    }


def _turn(episode: Episode, turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.index + 1,
        "reasoning": turn.completion.reasoning,
        "triton_code": turn.triton_code,
        "full_completion": turn.completion.text,
        "result": _measured(episode, turn),
        "feedback_given": turn.feedback_given,
    }


def _measured(episode: Episode, turn: Turn) -> dict[str, Any]:
    verdict, result = turn.verdict, _result(turn.verdict)
    error = result.pop("error")
    kernel, reference = verdict.kernel_time, verdict.reference_time
    speed = {key: result.pop(key) for key in ("correctness", "speedup")}
    return {
        "kernel_name": episode.task.name if episode.task.source != "kernelbook" else "generated_kernel",
        "timestamp": episode.created_at,
        **speed,
        "reference_time_ms": reference.median_ms if reference else None,
        "kernel_time_ms": kernel.median_ms if kernel else None,
        **result,
        "error": _NO_CODE_IN_TURN if turn.triton_code is None else error,
    }


def _result(verdict: Verdict) -> dict[str, Any]:
    return {
        "correctness": verdict.correct,
        "speedup": verdict.speedup or 0.0,
        "fast_0": verdict.fast_0,
        "fast_1": bool(verdict.fast_1),
        "fast_2": bool(verdict.fast_2),
        "error": _error(verdict),
    }


def _error(verdict: Verdict) -> str | None:
    """There an error is what was raised; a wrong output is none."""
    if verdict.error is None or verdict.correct:
        return None
    if verdict.compiled and verdict.error.category == "CORRECTNESS ERROR":
        return None
    return f"{verdict.error.category}: {verdict.error.message}"
