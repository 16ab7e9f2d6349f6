"""Properties of what is settled before a run: what is left to do, which device, which identity."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray import cluster, env_vars
from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError
from kb_ray.preflight import Ready, preflight, remaining, versions
from kb_ray.records import REDONE_ON_RESUME, StopReason, Task
from kb_ray.traces.resume import FinishedEpisode
from kb_ray.traces.run import open_run

PAIR_STATES = st.one_of(st.none(), st.tuples(st.integers(1, 4), st.sampled_from(list(StopReason)), st.booleans()))


def task(number: int) -> Task:
    return Task(
        task_id=f"folder/t{number}",
        source="folder",
        name=f"t{number}",
        reference_code="",
        style="function",
        entry_point="reference_impl",
    )


@given(st.lists(PAIR_STATES, max_size=12), st.booleans())
def test_each_planned_episode_is_done_or_to_do_and_only_failures_are_attempted_again(
    states: list[tuple[int, StopReason, bool] | None], retry_failed: bool
) -> None:
    planned = [(task(number), 0) for number in range(len(states))]
    done = {
        (f"folder/t{number}", 0): FinishedEpisode("", state[0], state[1], state[2], "", 0)
        for number, state in enumerate(states)
        if state is not None
    }
    work, again = remaining(planned, done, retry_failed)
    attempts = {item.task.task_id: item.attempt for item in work}
    retried = {item.task.task_id: item.attempt for item in again}
    assert len(attempts) == len(work)
    assert not set(attempts) & set(retried)
    assert retry_failed or not again
    for number, state in enumerate(states):
        name = f"folder/t{number}"
        if state is None:
            assert attempts[name] == 1
        elif state[1] in REDONE_ON_RESUME:
            assert attempts[name] == state[0] + 1
        else:
            assert name not in attempts
            assert (retried.get(name) == 2) == (retry_failed and state[0] == 1 and not state[2])


def test_what_is_left_keeps_the_order_of_the_plan() -> None:
    planned = [(task(number), sample) for sample, number in itertools.product(range(2), range(5))]
    work, _ = remaining(planned, {}, False)
    assert [(item.task, item.sample) for item in work] == planned


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with no cluster and no GPU in sight."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv(env_vars.RAY_ADDRESS, raising=False)
    return tmp_path


async def ready(**config: Any) -> Ready:
    """Preflight of a dry run, which asks for no cluster."""
    settings = {"tasks": ("builtin:3",), "model": "scripted", "output": "out", "dry_run": True}
    return await preflight(RunConfig(**(settings | config)), on_skip=pytest.fail)


async def test_a_checked_run_left_nothing_behind(folder: Path) -> None:
    found = await ready()
    assert found.earlier == 0
    assert len(found.work) == len(found.planned) > 0
    assert found.cluster is None
    assert list(folder.iterdir()) == []


async def test_auto_is_the_interpreter_where_there_is_no_gpu(folder: Path) -> None:
    assert (await ready()).bench.device == "cpu"


async def test_auto_stays_with_the_device_that_a_run_began_on(folder: Path) -> None:
    begun = await ready(device="cuda")
    open_run(begun.store, begun.run)
    resumed = await ready(device="auto")
    assert resumed.bench.device == "cuda"
    assert resumed.run.run_id == begun.run.run_id


async def test_a_run_here_that_needs_a_gpu_is_refused_before_ray_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(run_id: str, address: str | None = None) -> cluster.Cluster:
        raise _Joins(f"{address}")

    monkeypatch.setattr(cluster, "connect", connect)
    monkeypatch.setattr(cluster, "local_gpus", lambda: 0)
    monkeypatch.setattr(cluster, "unseen_gpus", lambda: False)
    seen = r"no NVIDIA GPU is seen on this machine .* name one with --ray-address, or give --device cpu"
    with pytest.raises(ConfigError, match=f"^--device cuda: {seen}"):
        await ready(device="cuda", dry_run=False)
    with pytest.raises(ConfigError, match=f"^--device cuda: {seen}"):
        await ready(device="cuda", dry_run=False, bench_workers="2")
    begun = await ready(device="cuda", output="begun")
    open_run(begun.store, begun.run)
    with pytest.raises(ConfigError, match=f"^output begun was begun on a GPU: {seen}"):
        await ready(output="begun", dry_run=False)
    for asks in ({"ray_address": "10.0.0.1:1"}, {"bench_workers": "0:8"}, {"device": "cpu"}):
        with pytest.raises(_Joins):
            await ready(**{"device": "cuda", "dry_run": False} | asks)
    for seen_or_not in ("local_gpus", "unseen_gpus"):
        with monkeypatch.context() as there:
            there.setattr(cluster, seen_or_not, lambda: 1)
            with pytest.raises(_Joins):
                await ready(device="cuda", dry_run=False)


class _Joins(Exception):
    """In place of joining Ray."""


async def test_a_run_keeps_its_id_and_identity_when_it_is_extended(folder: Path) -> None:
    begun = await ready()
    open_run(begun.store, begun.run)
    extended = await ready(tasks=("builtin",), samples=2, batch_size=3)
    assert (extended.run.run_id, extended.run.fingerprint) == (begun.run.run_id, begun.run.fingerprint)


async def test_another_script_is_another_model(folder: Path) -> None:
    fingerprints = set()
    for answer in ("a", "b", "b"):
        (folder / "script.jsonl").write_text(json.dumps({"task": "*", "turns": [answer]}))
        fingerprints.add((await ready(model="scripted:script.jsonl")).run.fingerprint)
    fingerprints.add((await ready()).run.fingerprint)
    assert len(fingerprints) == 3


async def test_run_json_says_what_took_part_and_holds_no_secret(folder: Path) -> None:
    found = await ready(api_key="hush")
    assert "hush" not in found.run.model_dump_json()
    assert found.run.versions == versions()
    assert {"kb_ray", "python", "ray", "pyarrow"} <= set(versions())
    assert found.run.config["tasks"] == ["builtin:3"]


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("-1", 0)])
def test_hidden_gpus_do_not_count(visible: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert cluster.local_gpus() == count


def test_the_token_is_found_where_ray_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(env_vars.RAY_AUTH_TOKEN, raising=False)
    monkeypatch.delenv(env_vars.RAY_AUTH_TOKEN_PATH, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cluster.token() is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("from-home\n")
    assert cluster.token() == "from-home"
    (tmp_path / "elsewhere").write_text("from-path")
    monkeypatch.setenv(env_vars.RAY_AUTH_TOKEN_PATH, str(tmp_path / "elsewhere"))
    assert cluster.token() == "from-path"
    monkeypatch.setenv(env_vars.RAY_AUTH_TOKEN, "given")
    assert cluster.token() == "given"


def test_a_cluster_is_looked_for_in_flag_then_variable_then_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.known_address(None) is None
    record = folder / "ray" / "ray_current_cluster"
    record.parent.mkdir()
    record.write_text("10.0.0.1:1\n")
    assert cluster.known_address(None) == ("10.0.0.1:1", str(record))
    monkeypatch.setenv(env_vars.RAY_ADDRESS, "10.0.0.2:2")
    assert cluster.known_address(None) == ("10.0.0.2:2", env_vars.RAY_ADDRESS)
    assert cluster.known_address("10.0.0.3:3") == ("10.0.0.3:3", "--ray-address")
    monkeypatch.setenv(env_vars.RAY_ADDRESS, "local")
    assert cluster.known_address(None) is None
