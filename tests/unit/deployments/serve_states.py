"""Serve's own records of applications as they come up, and the logs of their replicas, for tests of what is told of
them. Holds no test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
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

from kb_ray import serve_logs, serve_waiting

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


def status_is(monkeypatch: pytest.MonkeyPatch, *states: dict[str, ApplicationStatusOverview]) -> None:
    """What Serve says, one after the other."""
    said: Iterator[dict[str, ApplicationStatusOverview]] = iter(states)
    monkeypatch.setattr(serve, "status", lambda: SimpleNamespace(applications=next(said)))
    monkeypatch.setattr(serve_waiting, "_POLL_S", 0.0)


class Logs:
    """What the logs of each process of `10.0.0.2` hold, those below 10 replicas of
    `a`'s LLM, below 20 of `b`'s, others somebody else's; and since when each reading asked for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: dict[int, str]) -> None:
        self.since: list[float] = []
        self.held = held
        monkeypatch.setattr(serve_logs, "of_processes", self.of_processes)
        monkeypatch.setattr(serve_logs, "of_replicas", self.of_replicas)
        monkeypatch.setattr(serve_logs, "folder", lambda: Path("/tmp/ray/logs"))

    def of_processes(self, since: float, processes: serve_logs.Processes) -> dict[str, str]:
        self.since.append(since)
        assert {ip for _, ip in processes} == {"10.0.0.2"}
        return {f"worker-{pid}.err": self.held[pid] for pid, _ in processes if pid in self.held}

    def of_replicas(self, since: float, replicas: serve_logs.Replicas) -> dict[str, str]:
        self.since.append(since)
        assert all(deployment == "LLM" for _, deployment in replicas)
        ours = [pid for pid in self.held if any(pid // 10 == "ab".index(application) for application, _ in replicas)]
        return {f"worker-{pid}.err": self.held[pid] for pid in ours}


ENGINE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
DIED = "ActorDiedError()"
NO_ROOM = "(EngineCore pid={}) ValueError: No available memory for the cache blocks. Try increasing something"
NO_MEMORY = "(EngineCore pid={}) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def failing(
    left: int | None, cause: str = ENGINE, pid: int = 1, name: str = "a"
) -> dict[str, ApplicationStatusOverview]:
    """A replica could not start, in Serve's words; of one that died it says nothing more."""
    more = "" if left is None else f" {left} more time(s)"
    raised = f"\x1b[36mray::ServeReplica:{name}:LLM.initialize_and_get_metadata()\x1b[39m (pid={pid}, ip=10.0.0.2"
    said = cause if cause == DIED else f"{raised}, actor_id=4, repr=<ServeReplica:{name}:LLM>)\n{cause}"
    message = f"A replica failed to start with exception. Retrying{more}. Error:\n{said}"
    return {name: application(ApplicationStatus.DEPLOYING, LLM=deployment(message, STARTING=1))}


RUNNING = {"a": application(ApplicationStatus.RUNNING)}
SLOW = {"a": COMING}
