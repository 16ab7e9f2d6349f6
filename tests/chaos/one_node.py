"""A cloud of one machine for Ray's cluster launcher: a head behind `own_processes`.

Commands are run as they are, among that machine's processes; a node that is terminated is killed. Imported by `ray`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ray.autoscaler.command_runner import CommandRunnerInterface
from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import NODE_KIND_HEAD, STATUS_UP_TO_DATE, TAG_RAY_NODE_KIND, TAG_RAY_NODE_STATUS

from tests.processes import alive

_TAGS = {TAG_RAY_NODE_KIND: NODE_KIND_HEAD, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}


class OneNode(NodeProvider):  # type: ignore[misc]
    """Its one node is the head. `pid`, of its configuration, is the process that it lives and dies with."""

    @property
    def _pid(self) -> int:
        return int(self.provider_config["pid"])

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        return [str(self._pid)] if tag_filters.items() <= _TAGS.items() and alive(self._pid) else []

    def node_tags(self, node_id: str) -> dict[str, str]:
        return _TAGS

    def terminate_node(self, node_id: str) -> None:
        print(f"terminating {node_id}", flush=True)
        os.killpg(int(node_id), signal.SIGKILL)

    def get_command_runner(self, log_prefix: str, node_id: str, *others: object) -> CommandRunnerInterface:
        return _Inside(int(node_id))


class _Inside(CommandRunnerInterface):  # type: ignore[misc]
    """Runs commands among the processes of the machine that `pid` stands for."""

    def __init__(self, pid: int) -> None:
        self._first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]

    def run(self, cmd: str, **others: object) -> str:
        enter = ["nsenter", f"--target={self._first}", "--pid", "--mount", "sh", "-c", cmd]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        subprocess.run(enter, check=True, env=os.environ | {"PATH": path})
        return ""
