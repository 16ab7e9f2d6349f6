"""What is told while applications come up, in Serve's own records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from ray import serve
from ray.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ReplicaState,
)

from kb_ray import serve_waiting
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


def test_one_that_goes_meanwhile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _status_is(monkeypatch, {"a": COMING}, {})
    with pytest.raises(InfraError, match="application a was deleted while it started"):
        await_running(["a"], time.time())
