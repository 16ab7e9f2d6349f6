"""A head whose autoscaler brings and removes nodes: Ray's own fake provider, each node a real raylet on this machine.

Ray's `AutoscalingCluster` is not used: it ends every Ray of the machine before it starts. Knows no test.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures_head import clean_environment, free_port, wait_until_up, with_token
from tests.processes import descendants, end_group, session_of

MOST_NODES = 2
NODE_CPUS = 2
IDLE_S = 3.0
"""After which the autoscaler removes a node on which nothing runs."""
FAKE_HEAD_NODE_ID = "f" * 51 + "00000"
"""As the provider has it; importing it would import Ray before the fixture that sets Ray's environment."""
_PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"


@dataclass(frozen=True)
class Autoscaled:
    """A running head without bench nodes; up to MOST_NODES come, with NODE_CPUS each and the label of the pool."""

    address: str
    home: Path
    pid: int

    def environment(self) -> dict[str, str]:
        """For a process on this machine that uses the head."""
        return clean_environment(self.home) | {"RAY_AUTH_MODE": "token", "RAY_ADDRESS": self.address}

    def bench_nodes(self) -> list[int]:
        """Process ids of the raylets of the nodes that the autoscaler has brought."""
        raylets = [pid for pid, name in session_of(self.pid).items() if name == "raylet"]
        return [pid for pid in raylets if not _is_head(pid)]

    def candidates_on(self, node: int) -> set[int]:
        """What runs for candidates and references on a node: below its raylet, its actor and the actor's zygotes."""
        return descendants(node, deeper_than=2)


@pytest.fixture(scope="session")
def autoscaled() -> Iterator[Autoscaled]:
    # Not below pytest's folder: Ray's socket paths must stay under 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="kb-auto-"))
    home = with_token(folder / "home", "right" * 8)
    port = free_port()
    (folder / "cluster.json").write_text(json.dumps(_cluster(f"127.0.0.1:{port}")))
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"),
        *(f"--temp-dir={folder / 'ray'}", f"--autoscaling-config={folder / 'cluster.json'}"),
        *("--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000", "--labels=kb-pool=head"),
        *("--include-dashboard=false", "--disable-usage-stats", f"--ray-client-server-port={free_port()}"),
        *(f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}"),
    ]
    environment = clean_environment(home) | {
        "RAY_AUTH_MODE": "token", "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        # Labels are known to this autoscaler only, as on every cluster of `ray up`.
        "RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
    }  # fmt: skip
    log = (folder / "log").open("w")
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        wait_until_up(process, folder / "log")
        yield Autoscaled(f"127.0.0.1:{port}", home, process.pid)
    finally:
        end_group(process)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _cluster(address: str) -> dict[str, object]:
    bench = {
        "resources": {"CPU": NODE_CPUS, "object_store_memory": 80_000_000},
        "labels": {"kb-pool": "bench"},
        "node_config": {}, "min_workers": 0, "max_workers": MOST_NODES,
    }  # fmt: skip
    head = {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0}
    return {
        "cluster_name": "fake", "max_workers": MOST_NODES, "idle_timeout_minutes": IDLE_S / 60,
        # By its module: by its name Ray reads a file of defaults that its wheel does not have.
        "provider": {
            "type": "external", "module": _PROVIDER, "head_node_id": FAKE_HEAD_NODE_ID, "launch_multiple": True,
            "gcs_address": address,
        },
        "available_node_types": {"bench": bench, "ray.head.default": head},
        "head_node_type": "ray.head.default", "upscaling_speed": 1.0,
        **{key: {} for key in ("auth", "docker", "file_mounts", "head_node", "worker_nodes")},
        **{key: [] for key in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        **{f"{key}_commands": [] for key in (
            "setup", "initialization", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray",
        )},
        "file_mounts_sync_continuously": False,
    }  # fmt: skip


def _is_head(raylet: int) -> bool:
    return b"--head" in Path(f"/proc/{raylet}/cmdline").read_bytes().split(b"\0")
