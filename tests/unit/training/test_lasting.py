"""An outage of the store costs a run of training nothing that it learned, and a Ctrl-C ends the wait."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb_ray import checkpoints
from kb_ray.errors import StoreError
from kb_ray.records import Episode
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import LocalStore, open_store
from kb_ray.training import rl_command, sft_run
from kb_ray.training.rl_run import Judges, train
from tests.unit.learn.test_grpo import TASKS, judge
from tests.unit.model.model_server import running
from tests.unit.traces.examples import make_episode
from tests.unit.training.flaky import away_for, fail_in_turn, in_time_every_other_time
from tests.unit.training.test_rl_run import grpo, opening, told
from tests.unit.training.test_serving import Vllm
from tests.unit.training.test_sft_run import data, losses, model, settings

__all__ = ["data", "model"]
LONG_S = 20.0
"""How long a store is away where nobody should wait for it."""


def of_training(key: str) -> bool:
    return key.endswith(("metrics.jsonl", "state.pt", "checkpoint.json"))


async def learned(
    model: Path, output: Path, say: Callable[[str], None] = lambda line: None,
    may_write: Callable[[], None] = lambda: None, **changes: Any,
) -> list[Episode]:  # fmt: skip
    kept: list[Episode] = []
    judges = Judges(judge, kept.append, "r", may_write)
    await train(grpo(model, output, **changes), TASKS, judges, opening, say, "cpu")
    return kept


def interrupting(after: str) -> Callable[[str], None]:
    """Says nothing, and has a Ctrl-C come soon after such a line."""

    def say(line: str) -> None:
        if after in line:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    return say


def test_sft_goes_on_as_if_there_had_been_none(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sft_run.run(settings(model, data, tmp_path / "plain"), print, "cpu")
    said: list[str] = []
    with monkeypatch.context() as patched:
        fail_in_turn(patched, concerns=of_training)
        assert sft_run.run(settings(model, data, tmp_path / "run"), said.append, "cpu") == 9
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "plain"), rel=1e-5)
    assert checkpoints.steps(open_store(str(tmp_path / "run"))) == [8, 9]
    assert checkpoints.load(open_store(str(tmp_path / "run")), 9).files
    assert sum("trying on" in line for line in said) == sum("takes writes again" in line for line in said) > 0


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "within a loop"])
def test_a_ctrl_c_ends_the_wait_of_sft(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    def work() -> int:
        return sft_run.run(settings(model, data, tmp_path), interrupting("trying on"), "cpu")

    async def whole() -> int:
        return work()

    away_for(monkeypatch, LONG_S, concerns=of_training)
    with pytest.raises(KeyboardInterrupt):
        work() if alone else asyncio.run(whole())


async def test_grpo_goes_on_as_if_there_had_been_none(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await learned(model, tmp_path / "plain")
    said: list[str] = []
    with monkeypatch.context() as patched:
        fail_in_turn(patched, concerns=of_training)
        await learned(model, tmp_path / "run", said.append, in_time_every_other_time())
    for one, other in zip(told(tmp_path / "plain"), told(tmp_path / "run"), strict=True):
        assert other["Reward/Mean"] == pytest.approx(one["Reward/Mean"])
        assert set(other) == set(one)
    assert checkpoints.steps(open_store(str(tmp_path / "run")))
    assert sum("trying on" in line for line in said) == sum("takes writes again" in line for line in said) > 0


@pytest.mark.parametrize("concerned", ["metrics.jsonl", "checkpoints/"])
def test_a_ctrl_c_ends_the_wait_of_grpo(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, concerned: str
) -> None:
    away_for(monkeypatch, LONG_S, concerns=lambda key: key.startswith(concerned))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(learned(model, tmp_path, interrupting("trying on")))


async def test_adapters_are_published_through_it_too(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_in_turn(monkeypatch, concerns=lambda key: "-step" in key)
    async with running(Vllm(tmp_path / "lora")) as server:
        changes = {"vllm_url": server.url, "adapters_path": str(tmp_path / "lora"), "steps": 2}
        kept = await learned(model, tmp_path / "run", **changes)
    assert len(kept) == 2 * 64
    assert len({key.partition("/")[0] for key in LocalStore(str(tmp_path / "lora")).list("")}) == 3


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_run_that_is_stopped_waits_for_its_traces_for_a_short_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr(rl_command, "_FLUSH_ON_STOP_S", 0.2)
    (tmp_path / "file").write_text("")
    sink = TraceSink(LocalStore(str(tmp_path / "file")), give_up_s=60.0 if stopped else 0.2)
    sink.add(make_episode())
    said: list[str] = []
    began = time.monotonic()
    if stopped:
        await rl_command._closed(sink, stopped, said.append)
        assert "1 finished episodes not saved" in said[0]
    else:
        with pytest.raises(StoreError):
            await rl_command._closed(sink, stopped, said.append)
    assert time.monotonic() - began < 10
