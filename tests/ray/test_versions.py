"""Machines that differ in what verdicts depend on do not serve one run: told in one line, before anything begins."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_autoscaling import Autoscaled
from tests.fixtures_head import ROOT, Head, clean_environment, free_port, wait_until_up
from tests.fixtures_run import Command, make_workload
from tests.processes import end_group

OTHER = "9.9.9"
POOL = """
import asyncio, sys, ray
from kb_ray import cluster
from kb_ray.bench.pool import BenchPool
from tests.ray.pool_pieces import addition, until

async def main():
    cluster.connect("versions", sys.argv[1])
    told = []
    pool = BenchPool(2, 1, "cpu", "versions", warn=told.append)
    await pool.start()
    assert await until(lambda: told, 120), pool.stats
    verdict = await pool.evaluate(addition())
    print(verdict.status, pool.stats.ready, pool.stats.workers, pool.lost)
    print(*told, sep="\\n")
    await pool.close()

asyncio.run(main())
"""
JOIN_WITH_ANOTHER_RAY = """
import sys, ray
from kb_ray import cluster
from kb_ray.errors import ConfigError

ray.__version__ = "2.59.0"
try:
    cluster.connect("run-8", sys.argv[1])
except ConfigError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def unlike_nodes(autoscaled: Autoscaled) -> Iterator[Autoscaled]:
    """The cluster with two bench nodes, of which one says that it has another Triton."""
    # Not below pytest's folder: Ray's socket paths must stay under 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="kb-node-"))
    metadata = folder / "other" / f"triton-{OTHER}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {OTHER}\n")
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        # One after the other: Ray gives a node 30 seconds to start, on however busy a machine.
        for path in (str(ROOT), f"{metadata.parents[1]}:{ROOT}"):
            log = folder / f"{len(nodes)}.log"
            nodes.append(_start(autoscaled, log, path))
            wait_until_up(nodes[-1], log)
        yield autoscaled
    finally:
        for node in nodes:
            end_group(node)
        shutil.rmtree(folder, ignore_errors=True)


def _start(cluster: Autoscaled, log: Path, path: str) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={cluster.address}", "--block"),
        *("--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000", "--labels=kb-pool=bench"),
        *("--disable-usage-stats", f"--dashboard-agent-listen-port={free_port()}"),
        f"--metrics-export-port={free_port()}",
    ]
    environment = clean_environment(cluster.home) | {"RAY_AUTH_MODE": "token", "PYTHONPATH": path}
    with log.open("w") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=environment)


def test_a_run_on_nodes_with_other_versions_is_refused_before_it_begins(
    unlike_nodes: Autoscaled, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 1), tmp_path / "out"
    code, said = Command().run(workload.arguments(str(output)), unlike_nodes.environment())
    assert code == 2, said
    [line] = said.strip().splitlines()
    assert "bench nodes differ in triton" in line
    assert OTHER in line
    assert not output.exists() or not any(output.rglob("*.*"))


def test_a_worker_that_comes_with_other_versions_takes_no_part(unlike_nodes: Autoscaled) -> None:
    done = subprocess.run(
        [sys.executable, "-c", POOL, unlike_nodes.address],
        capture_output=True, text=True, cwd=ROOT, timeout=240,
        env=unlike_nodes.environment() | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    state, warning = done.stdout.strip().splitlines()
    assert state == "ok 1 2 None"
    assert "takes no part: bench nodes differ in triton" in warning


def test_a_driver_with_another_ray_is_told_so_in_one_line(head: Head) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOIN_WITH_ANOTHER_RAY, head.address],
        capture_output=True, text=True, cwd=ROOT, env=head.environment(), timeout=60,
    )  # fmt: skip
    assert "Version mismatch" in done.stdout, done.stderr
    assert "2.59.0" in done.stdout
    assert done.stdout.count("\n") == 1
