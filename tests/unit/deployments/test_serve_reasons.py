"""Why a replica failed is told from what is its own: a cluster has other jobs, and a file several applications."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ray._private.ray_constants import LOG_PREFIX_ACTOR_NAME
from ray.exceptions import RayTaskError
from ray.serve._private.common import DeploymentID
from ray.serve.schema import ApplicationStatus

from kb_ray import serve_logs, serve_waiting
from kb_ray.errors import InfraError
from kb_ray.serve_waiting import await_running
from tests.unit.deployments.serve_states import (
    DIED,
    ENGINE,
    NO_MEMORY,
    NO_ROOM,
    RUNNING,
    SLOW,
    Logs,
    application,
    deployment,
    failing,
    status_is,
)  # fmt: skip


@pytest.mark.parametrize(("cause", "said"), [(ENGINE, ENGINE), (DIED, "its logs are in /tmp/ray/logs")])
def test_another_job_of_the_cluster_that_fails_ends_nobody_elses_deployment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cause: str, said: str
) -> None:
    Logs(monkeypatch, {1: "ValueError: of its own", 77: NO_ROOM.format(77)})
    status_is(monkeypatch, failing(2, cause), SLOW, RUNNING)
    await_running(["a"], time.time() - 40)
    told = capsys.readouterr()
    assert f"a replica of LLM in a failed to start, Serve tries again: {said}" in told.out
    assert ("KV cache" in told.out, told.err) == (False, "")
    given_up = {"a": application(ApplicationStatus.DEPLOY_FAILED, LLM=deployment(f"failed to start 3 times. {cause}"))}
    status_is(monkeypatch, given_up)
    with pytest.raises(InfraError, match="its replicas' logs are in /tmp/ray/logs"):
        await_running(["a"], time.time())
    assert NO_ROOM.format(77) not in capsys.readouterr().err


@pytest.mark.parametrize("cause", [ENGINE, DIED])
def test_two_that_fail_at_once_are_told_each_with_its_own_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cause: str
) -> None:
    held = "ValueError: Free memory on device cuda:0 (9/79 GiB) on startup is less than desired"
    logs = Logs(monkeypatch, {1: NO_MEMORY.format(1), 11: held})
    both = failing(2, cause) | failing(2, cause, pid=11, name="b")
    up = application(ApplicationStatus.RUNNING)
    status_is(monkeypatch, both, both, both, {"a": up, "b": up})
    await_running(["a", "b"], time.time())
    told = capsys.readouterr()
    first, second = told.out.splitlines()
    assert first.startswith("a replica of LLM in a failed to start, Serve tries again: the GPU ran out of memory")
    assert second.startswith("a replica of LLM in b failed to start, Serve tries again: somebody else holds GPU memory")
    assert told.err == f"log: {NO_MEMORY.format(1)}\nlog: {held}\n"
    assert len(logs.since) == 2


def test_two_that_fail_alike_are_both_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Logs(monkeypatch, {1: NO_MEMORY.format(1), 11: NO_MEMORY.format(11)})
    up = application(ApplicationStatus.RUNNING)
    status_is(monkeypatch, failing(2) | failing(2, pid=11, name="b"), {"a": up, "b": up})
    await_running(["a", "b"], time.time())
    assert [line[:23] for line in capsys.readouterr().out.splitlines()] == [
        "a replica of LLM in a f",
        "a replica of LLM in b f",
    ]


def test_what_may_be_another_replicas_is_told_and_not_for_good(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Serve does not say which process it was that died."""
    Logs(monkeypatch, {1: NO_ROOM.format(1)})
    status_is(monkeypatch, failing(2, DIED), RUNNING)
    await_running(["a"], time.time())
    assert "Serve tries again: the KV cache does not fit" in capsys.readouterr().out


def test_of_two_replicas_the_one_that_failed_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, {1: NO_MEMORY.format(1), 2: NO_ROOM.format(2)})
    status_is(monkeypatch, failing(2), RUNNING)
    await_running(["a"], time.time())
    assert "the GPU ran out of memory" in capsys.readouterr().out


def test_ray_says_which_process_it_was_in_the_words_that_are_looked_for() -> None:
    error = RayTaskError("f", "Traceback (most recent call last):\nValueError: x", ValueError("x"), "p", 77, "10.0.0.2")
    assert serve_waiting._processes(f"Retrying. Error:\n{error}") == [(77, "10.0.0.2")]
    assert serve_waiting._processes(DIED + NO_ROOM.format(7)) == []


def write(folder: Path, name: str, *lines: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")


def test_logs_are_those_of_the_processes_and_replicas_that_are_asked_for(tmp_path: Path) -> None:
    job, actor = ":job_id:01000000", ":actor_name:ServeReplica:a:LLM"
    write(tmp_path, "worker-1-ffffffff-71.err", job, "what it did before", actor, "of 71")
    write(tmp_path, "worker-2-01000000-72.err", job, actor, "of 72")
    write(tmp_path, "worker-3-01000000-711.err", job, actor + "2", "of another deployment")
    write(tmp_path, "worker-5-01000000-171.err", job, "of another process")
    write(tmp_path, "worker-4-02000000-73.err", ":job_id:02000000", "of another job", f"it names {actor}")
    write(tmp_path, "serve/replica_a_LLM_x1y2z3.log", "of Serve")
    write(tmp_path, "serve/replica_b_LLM_x1y2z3.log", "of another application")
    write(tmp_path, "raylet.out", actor, "not a worker's")

    def last(*of: object) -> list[str]:
        return sorted(text.splitlines()[-1] for text in serve_logs.ends(tmp_path, time.time() - 60, *of).values())

    assert last([71], []) == ["of 71"]
    assert last([], [("a", "LLM")]) == ["of 71", "of 72", "of Serve"]
    assert last([74], [("c", "LLM")]) == []
    os.utime(tmp_path / "worker-2-01000000-72.err", (1.0, 1.0))
    assert last([72], [("a", "LLM")]) == ["of 71", "of Serve"], "written since"


@pytest.mark.parametrize(
    ("method", "time_of_it"), [("stat", 1), ("stat", 2), ("open", 1), ("open", 2)],
    ids=["listed", "listed again", "its head is read", "its end is read"],
)  # fmt: skip
def test_a_log_that_is_rotated_away_before_takes_no_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, time_of_it: int
) -> None:
    gone, stays = "worker-1-ffffffff-71.err", "worker-2-ffffffff-72.err"
    for name in (gone, stays):
        write(tmp_path, name, ":actor_name:ServeReplica:a:LLM", "of it")
    original, left = getattr(Path, method), [time_of_it]

    def rotated(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == gone:
            left[0] -= 1
            if left == [0]:
                path.unlink()
        return original(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, method, rotated)
        found = serve_logs.ends(tmp_path, 0.0, [], [("a", "LLM")])
    assert not (tmp_path / gone).exists()
    assert found.keys() == {stays}


def test_of_a_long_log_its_end_is_read(tmp_path: Path) -> None:
    write(tmp_path, "worker-1-ffffffff-71.err", ":actor_name:ServeReplica:a:LLM", "x" * 100_000, "end")
    (found,) = serve_logs.ends(tmp_path, time.time() - 60, [], [("a", "LLM")]).values()
    assert found.endswith("x\nend\n")
    assert len(found) < 25_000


def test_a_worker_of_a_replica_says_so_in_the_words_that_are_looked_for() -> None:
    """Of the installed Ray: they are no interface."""
    named = DeploymentID(name="LLM", app_name="a").to_replica_actor_class_name()
    assert LOG_PREFIX_ACTOR_NAME + named == ":actor_name:ServeReplica:a:LLM"
