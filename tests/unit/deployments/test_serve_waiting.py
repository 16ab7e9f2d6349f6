"""What is told while applications come up, in Serve's own records."""

from __future__ import annotations

import inspect
import time
from types import SimpleNamespace

import pytest
from ray import serve
from ray.serve._private.deployment_state import DeploymentState
from ray.serve.schema import ApplicationStatus

from kb_ray import serve_waiting
from kb_ray.errors import InfraError
from kb_ray.serve_waiting import await_running, how_far
from tests.unit.deployments.serve_states import (
    COMING,
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


def test_replicas_are_counted_that_are_up_of_those_that_are_wanted() -> None:
    building = application(ApplicationStatus.DEPLOYING)
    assert how_far({"a": COMING, "b": building}) == (
        "a is deploying: 1 of 2 replicas of LLM up (1 replicas that wait), 1 of 1 replicas of Front up; "
        "b is deploying: its deployments are being built"
    )


def test_one_that_takes_long_is_told_every_half_minute_and_not_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = application(ApplicationStatus.RUNNING)
    status_is(monkeypatch, *[{"a": COMING, "b": running}] * 3, {"a": running, "b": running})
    await_running(["a", "b"], time.time() - 40)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("after 40 s: a is deploying: 1 of 2 replicas of LLM up")
    status_is(monkeypatch, {"a": COMING}, {"a": running})
    await_running(["a"], time.time())
    assert capsys.readouterr().out == ""


def test_why_a_start_failed_is_told_at_once_and_once_while_serve_tries_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(monkeypatch, {1: NO_MEMORY.format(1), 2: NO_MEMORY.format(2)})
    status_is(monkeypatch, SLOW, failing(2), failing(2), SLOW, failing(1, pid=2), SLOW, RUNNING)
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
    Logs(monkeypatch, {1: held, 2: NO_MEMORY.format(2)})
    status_is(monkeypatch, failing(2), failing(1, pid=2), RUNNING)
    await_running(["a"], time.time())
    first, second = capsys.readouterr().out.splitlines()
    assert "somebody else holds GPU memory" in first
    assert "the GPU ran out of memory" in second


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (NO_ROOM.format(1), "the KV cache does not fit .* max_model_len"),
        (
            "KeyError: \"Reasoning parser 'glm45x' not found. Available parsers: glm45\"",
            "a parser under `engine` is none",
        ),
    ],
)
def test_what_no_further_try_can_mend_ends_the_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log: str, why: str
) -> None:
    Logs(monkeypatch, {1: log})
    status_is(monkeypatch, SLOW, failing(2))
    with pytest.raises(InfraError, match=f"^application a did not come up: {why}"):
        await_running(["a"], time.time())
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"log: {log}\n")


@pytest.mark.parametrize("said", serve_waiting._FOR_GOOD)
def test_what_is_for_good_is_among_the_advice(said: str | None) -> None:
    assert said is not None


def test_where_another_replica_has_started_no_reason_is_for_good(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, {1: NO_ROOM.format(1)})
    status_is(monkeypatch, failing(None), RUNNING)
    await_running(["a"], time.time())
    assert "Serve tries again: the KV cache does not fit" in capsys.readouterr().out


@pytest.mark.parametrize("cause", ["RuntimeError: a cause that nobody knows", None])
def test_logs_of_others_alarm_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cause: str | None
) -> None:
    """Neither before a start has failed, nor where Serve itself says why."""
    logs = Logs(monkeypatch, {1: NO_ROOM.format(7)})
    status_is(monkeypatch, SLOW, SLOW if cause is None else failing(2, cause), SLOW, RUNNING)
    await_running(["a"], time.time() - 40)
    told = capsys.readouterr()
    assert logs.since == []
    assert (told.err, "KV cache" in told.out) == ("", False)
    assert cause is None or f"a replica of LLM in a failed to start, Serve tries again: {cause}\n" in told.out


def test_a_reason_that_serve_itself_gives_needs_no_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(monkeypatch, {})
    status_is(monkeypatch, failing(2, "huggingface_hub.errors.GatedRepoError: 403"), RUNNING)
    await_running(["a"], time.time())
    told = capsys.readouterr()
    assert logs.since == []
    assert "HF_TOKEN" in told.out
    assert told.err == "log: huggingface_hub.errors.GatedRepoError: 403\n"


def _clock_runs(monkeypatch: pytest.MonkeyPatch) -> float:
    """By 0.1 s with every look, and it is told every 0.2 s. Returns where it begins."""
    clock = [1000.0]
    monkeypatch.setattr(serve_waiting, "TELL_S", 0.2)
    monkeypatch.setattr(time, "sleep", lambda _: clock.append(clock[-1] + 0.1))
    monkeypatch.setattr(time, "time", lambda: clock[-1])
    return clock[0]


def test_logs_that_say_nothing_yet_are_read_again_when_it_is_told_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(monkeypatch, {1: "ValueError: of something else"})
    states = iter([failing(2), SLOW, SLOW, SLOW])

    def status() -> SimpleNamespace:
        if logs.since:
            logs.held[1] += "\n" + NO_ROOM.format(1)
        return SimpleNamespace(applications=next(states))

    started = _clock_runs(monkeypatch)
    monkeypatch.setattr(serve, "status", status)
    with pytest.raises(InfraError, match="the KV cache does not fit"):
        await_running(["a"], started)
    told = capsys.readouterr()
    assert logs.since == [started, started]
    assert told.out == f"a replica of LLM in a failed to start, Serve tries again: {ENGINE}\n"
    assert told.err == f"log: {NO_ROOM.format(1)}\n"


def test_logs_that_never_say_it_are_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(monkeypatch, {1: "ValueError: of something else"})
    started = _clock_runs(monkeypatch)
    status_is(monkeypatch, failing(2), *[SLOW] * 100, RUNNING)
    await_running(["a"], started)
    assert logs.since == [started] * serve_waiting._READINGS


def test_what_was_told_meanwhile_is_not_told_again_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, {pid: NO_MEMORY.format(pid) for pid in (1, 2, 3)})
    given_up = {"a": application(ApplicationStatus.DEPLOY_FAILED, LLM=deployment(f"failed to start 3 times. {ENGINE}"))}
    status_is(monkeypatch, failing(2), failing(1, pid=2), failing(0, pid=3), given_up)
    with pytest.raises(InfraError, match="application a did not come up: the GPU ran out of memory"):
        await_running(["a"], time.time())
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 1
    assert told.err == f"log: {NO_MEMORY.format(1)}\n"


def test_one_that_was_given_up_at_its_first_start_shows_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Logs(monkeypatch, {1: NO_MEMORY.format(1)})
    status_is(monkeypatch, failing(0), {"a": application(ApplicationStatus.DEPLOY_FAILED, LLM=deployment(ENGINE))})
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
    status_is(monkeypatch, {"a": COMING}, {})
    with pytest.raises(InfraError, match="application a was deleted while it started"):
        await_running(["a"], time.time())
