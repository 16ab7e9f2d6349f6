"""Episodes for trace tests: one plain builder, and a hypothesis strategy over every field of every record."""

from __future__ import annotations

import types
import typing
from enum import StrEnum
from typing import Any, Literal

from hypothesis import strategies as st
from pydantic import BaseModel

from kb_ray.records import (
    Completion,
    Environment,
    Episode,
    Evidence,
    Message,
    Stage,
    Status,
    StopReason,
    Task,
    Timing,
    Turn,
    Usage,
    Verdict,
)
from kb_ray.traces.layout import part_key
from kb_ray.traces.run import episode_id
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import Store

FINGERPRINT = "0123456789abcdef"


def make_task(name: str = "add_relu") -> Task:
    return Task(
        task_id=f"builtin/1/{name}",
        source="builtin",
        level=1,
        name=name,
        reference_code="def reference_impl(x, y):\n    return torch.relu(x + y)\n",
        style="function",
        entry_point="reference_impl",
    )


def make_turn(index: int, verdict: Verdict) -> Turn:
    return Turn(
        index=index,
        prompt_hash="ab" * 8,
        completion=Completion(
            text=f"answer {index}", finish_reason="stop", model="scripted", usage=Usage(completion_tokens=7)
        ),
        triton_code=f"code {index}",
        feedback_given=None,
        verdict=verdict,
    )


def make_episode(
    name: str = "add_relu",
    sample: int = 0,
    attempt: int = 1,
    stop: StopReason = StopReason.SUCCESS_FAST,
    text: str = "write it",
) -> Episode:
    """An episode of two turns, the second correct; without turns where it ended in an error of ours."""
    task = make_task(name)
    good = Verdict.of(
        Status.OK,
        Stage.TIMING,
        speedup=2.5,
        trusted=True,
        kernel_time=Timing(median_ms=1.0, trimmed_mean_ms=1.0, std_ms=0.1, n=2, samples_ms=(1.0, 1.1)),
        evidence=Evidence(kernel_launches=3, torch_ops={"aten::empty": 1}),
        env=Environment(device="cuda"),
        tests_passed=5,
        tests_total=5,
        seconds={"load": 0.25, "total": 1.5},
    )
    turns = (make_turn(0, Verdict.of(Status.MISMATCH, Stage.FULL)), make_turn(1, good))
    failed = stop in (StopReason.INFRA_ERROR, StopReason.MODEL_ERROR)
    return Episode(
        episode_id=episode_id(task.task_id, sample, attempt, FINGERPRINT),
        run_id="run-1",
        task=task,
        sample=sample,
        attempt=attempt,
        turns=() if failed else turns,
        stop_reason=stop,
        best_turn=None if failed else 1,
        messages=(Message(role="user", content=text),),
        error="gone" if failed else None,
        created_at="2026-01-02T03:04:05+00:00",
    )


def put_part(store: Store, *samples: int, attempt: int = 1) -> str:
    """A part with one episode for each of `samples`; its key."""
    data = table_bytes([make_episode(sample=sample, attempt=attempt) for sample in samples])
    key = part_key(data)
    store.put_if_absent(key, data)
    return key


def any_episode() -> st.SearchStrategy[Episode]:
    """Any episode that the records allow, with numbers of 64 bits and best_turn one of its turns."""
    turns = st.lists(_record(Turn), max_size=2).map(tuple)
    return turns.flatmap(
        lambda some: _record(
            Episode,
            turns=st.just(some),
            best_turn=st.none() | st.integers(0, len(some) - 1) if some else st.none(),
        )
    )


def _record(cls: type[BaseModel], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    fields = {name: _value(hints[name]) for name in cls.model_fields if name not in fixed}
    return st.builds(cls, **fields, **fixed)


def _value(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_value(argument) for argument in arguments])
    if origin is tuple:
        return st.lists(_value(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(_value(arguments[0]), _value(arguments[1]), max_size=2)
    if origin is Literal:
        return st.sampled_from(arguments)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    return {
        str: st.text(max_size=8),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(),
        bool: st.booleans(),
        type(None): st.none(),
    }[hint]
