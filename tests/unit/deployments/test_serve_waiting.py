"""What is told while applications come up, in Serve's own records."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray import serve
from ray.serve._private.deployment_state import DeploymentState
from ray.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ReplicaState,
)

from kb_ray import serve_logs, serve_waiting
from kb_ray.errors import InfraError
from kb_ray.serve_waiting import await_running, how_far

TRIGGER = DeploymentStatusTrigger.CONFIG_UPDATE_STARTED


def application(status: ApplicationStatus, **replicas: DeploymentStatusOverview) -> ApplicationStatusOverview:
    return ApplicationStatusOverview(status=status, message="", last_deployed_time_s=0.0, deployments=dict(replicas))


def deployment(message: str = "", **states: int) -> DeploymentStatusOverview:
    counts = {ReplicaState[state]: count for state, count in states.items()}
    return DeploymentStatusOverview(DeploymentStatus.UPDATING, TRIGGER, counts, message)


COMING = application(
    ApplicationStatus.DEPLOYING,
    LLM=deployment(
        "Deployment 'L' in application 'a' has 1 replicas\n that wait. This may be", STARTING=1, RUNNING=1, STOPPING=2
    ),
    Front=deployment(RUNNING=1),
)


def test_replicas_are_counted_that_are_up_of_those_that_are_wanted() -> None:
    building = application(ApplicationStatus.DEPLOYING)
    assert how_far({"a": COMING, "b": building}) == (
        "a is deploying: 1 of 2 replicas of LLM up (1 replicas that wait), 1 of 1 replicas of Front up; "
        "b is deploying: its deployments are being built"
    )


def _status_is(monkeypatch: pytest.MonkeyPatch, *states: dict[str, ApplicationStatusOverview]) -> None:
    """What Serve says, one after the other."""
    said: Iterator[dict[str, ApplicationStatusOverview]] = iter(states)
    monkeypatch.setattr(serve, "status", lambda: SimpleNamespace(applications=next(said)))
    monkeypatch.setattr(serve_waiting, "_POLL_S", 0.0)


def test_one_that_takes_long_is_told_every_half_minute_and_not_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = application(ApplicationStatus.RUNNING)
    _status_is(monkeypatch, *[{"a": COMING, "b": running}] * 3, {"a": running, "b": running})
    await_running(["a", "b"], time.time() - 40)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("after 40 s: a is deploying: 1 of 2 replicas of LLM up")
    _status_is(monkeypatch, {"a": COMING}, {"a": running})
    await_running(["a"], time.time())
    assert capsys.readouterr().out == ""


class Logs:
    """What the cluster's logs hold, and since when each reading asked for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *held: str) -> None:
        self.since: list[float] = []
        self._held = [*held]
        monkeypatch.setattr(serve_logs, "recent", self.recent)
        monkeypatch.setattr(serve_logs, "folder", lambda: Path("/tmp/ray/logs"))

    def recent(self, since: float) -> str:
        self.since.append(since)
        return self._held.pop(0) if len(self._held) > 1 else self._held[0]


ENGINE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
NO_ROOM = "(EngineCore pid={}) ValueError: No available memory for the cache blocks. Try increasing something"
NO_MEMORY = "(EngineCore pid={}) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def failing(left: int | None, cause: str = ENGINE, pid: int = 1) -> dict[str, ApplicationStatusOverview]:
    """A replica of `a` could not start, in Serve's words."""
    more = "" if left is None else f" {left} more time(s)"
    said = f"ray::ServeReplica:a:LLM.initialize_and_get_metadata() (pid={pid}, ip=10.0.0.2)\n{cause}"
    message = f"A replica failed to start with exception. Retrying{more}. Error:\n{said}"
    return {"a": application(ApplicationStatus.DEPLOYING, LLM=deployment(message, STARTING=1))}


RUNNING = {"a": application(ApplicationStatus.RUNNING)}
SLOW = {"a": COMING}


def test_why_a_start_failed_is_told_at_once_and_once_while_serve_tries_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(monkeypatch, NO_MEMORY.format(1), NO_MEMORY.format(1) + "\n" + NO_MEMORY.format(2))
    _status_is(monkeypatch, SLOW, failing(2), failing(2), SLOW, failing(1, pid=2), SLOW, RUNNING)
    started = time.time()
    await_running(["a"], started)
    told = capsys.readouterr()
    (line,) = told.out.splitlines()
    assert line.startswith("a replica of LLM in a failed to start, Serve tries again: the GPU ran out of memory: lower")
    assert told.err == f"log: {NO_MEMORY.format(1)}\n"
    assert logs.since == [started, started], "once for each failure, and nothing of earlier starts"


def test_another_reason_of_a_later_try_is_told_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = "ValueError: Free memory on device cuda:0 (9/79 GiB) on startup is less than desired"
    Logs(monkeypatch, held, f"{held}\n{NO_MEMORY.format(2)}")
    _status_is(monkeypatch, failing(2), failing(1, pid=2), RUNNING)
    await_running(["a"], time.time())
    first, second = capsys.readouterr().out.splitlines()
    assert "somebody else holds GPU memory" in first
    assert "the GPU ran out of memory" in second


def test_what_no_further_try_can_mend_ends_the_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, NO_ROOM.format(1))
    _status_is(monkeypatch, SLOW, failing(2))
    with pytest.raises(InfraError, match=r"^application a did not come up: the KV cache does not fit .* max_model_len"):
        await_running(["a"], time.time())
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"log: {NO_ROOM.format(1)}\n")


@pytest.mark.parametrize("said", serve_waiting._FOR_GOOD)
def test_what_is_for_good_is_among_the_advice(said: str | None) -> None:
    assert said is not None


def test_where_another_replica_has_started_no_reason_is_for_good(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, NO_ROOM.format(1))
    _status_is(monkeypatch, failing(None), RUNNING)
    await_running(["a"], time.time())
    assert "Serve tries again: the KV cache does not fit" in capsys.readouterr().out


@pytest.mark.parametrize("cause", ["RuntimeError: a cause that nobody knows", None])
def test_logs_of_others_alarm_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cause: str | None
) -> None:
    """Neither before a start has failed, nor where Serve itself says why."""
    logs = Logs(monkeypatch, NO_ROOM.format(7))
    _status_is(monkeypatch, SLOW, SLOW if cause is None else failing(2, cause), SLOW, RUNNING)
    await_running(["a"], time.time() - 40)
    told = capsys.readouterr()
    assert logs.since == []
    assert (told.err, "KV cache" in told.out) == ("", False)
    assert cause is None or f"a replica of LLM in a failed to start, Serve tries again: {cause}\n" in told.out


def test_a_reason_that_serve_itself_gives_needs_no_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(monkeypatch, "")
    _status_is(monkeypatch, failing(2, "huggingface_hub.errors.GatedRepoError: 403"), RUNNING)
    await_running(["a"], time.time())
    told = capsys.readouterr()
    assert logs.since == []
    assert "HF_TOKEN" in told.out
    assert told.err == "log: huggingface_hub.errors.GatedRepoError: 403\n"


def test_logs_that_say_nothing_yet_are_read_again_when_it_is_told_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(monkeypatch, "ValueError: of somebody else's", NO_ROOM.format(1))
    monkeypatch.setattr(serve_waiting, "TELL_S", 0.2)
    monkeypatch.setattr(time, "sleep", lambda _: clock.append(clock[-1] + 0.1))
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[-1])
    _status_is(monkeypatch, failing(2), SLOW, SLOW, SLOW)
    with pytest.raises(InfraError, match="the KV cache does not fit"):
        await_running(["a"], 1000.0)
    told = capsys.readouterr()
    assert logs.since == [1000.0, 1000.0]
    assert told.out == f"a replica of LLM in a failed to start, Serve tries again: {ENGINE}\n"
    assert told.err == f"log: {NO_ROOM.format(1)}\n"


def test_what_was_told_meanwhile_is_not_told_again_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, NO_MEMORY.format(1), "\n".join(NO_MEMORY.format(pid) for pid in (1, 2, 3)))
    given_up = {"a": application(ApplicationStatus.DEPLOY_FAILED, LLM=deployment(f"failed to start 3 times. {ENGINE}"))}
    _status_is(monkeypatch, failing(2), failing(1, pid=2), failing(0, pid=3), given_up)
    with pytest.raises(InfraError, match="application a did not come up: the GPU ran out of memory"):
        await_running(["a"], time.time())
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 1
    assert told.err == f"log: {NO_MEMORY.format(1)}\n"


def test_one_that_was_given_up_at_its_first_start_shows_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, NO_MEMORY.format(1))
    _status_is(monkeypatch, failing(0), {"a": application(ApplicationStatus.DEPLOY_FAILED, LLM=deployment(ENGINE))})
    with pytest.raises(InfraError, match="the GPU ran out of memory"):
        await_running(["a"], time.time())
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"log: {NO_MEMORY.format(1)}\n")


def test_serve_says_that_a_start_failed_in_the_words_that_are_looked_for() -> None:
    """Of the installed Serve: they are no interface."""
    source = inspect.getsource(DeploymentState.record_replica_startup_failure)
    assert 'f"A replica failed to start with exception. Retrying{retrying_msg}. "' in source
    assert 'f" {remaining_retries} more time(s)"' in source
    words = failing(2)["a"].deployments["LLM"].message
    assert serve_waiting._FAILED_START.match(words)
    assert not serve_waiting._FAILED_START.match(COMING.deployments["LLM"].message)


def test_one_that_goes_meanwhile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _status_is(monkeypatch, {"a": COMING}, {})
    with pytest.raises(InfraError, match="application a was deleted while it started"):
        await_running(["a"], time.time())
