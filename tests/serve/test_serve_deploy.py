"""A deployment file by Serve's own command, on a head with a token: deployed, used, and shut down."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

from kb_ray.bench.client import BenchClient
from tests.chaos.running import PATIENCE_S
from tests.fixtures_head import ROOT, Head, free_port, ray_command
from tests.ray.pool_pieces import KERNEL

SERVE = Path(sys.executable).with_name("serve")
REFERENCE = "def reference_impl(x):\n    return x + 1\n"


def serve(head: Head, command: str, *arguments: str) -> str:
    """What `serve COMMAND` against the head printed."""
    done = subprocess.run(
        [SERVE, command, "--address", head.dashboard, *arguments],
        capture_output=True, text=True, cwd=ROOT, env=head.environment(), timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def file_of(folder: Path, port: int) -> Path:
    """deployments/bench.yaml for this machine: a port that is free, one worker on CPUs."""
    given = yaml.safe_load((ROOT / "deployments" / "bench.yaml").read_text())
    given["http_options"]["port"] = port
    given["applications"][0]["args"] |= {"workers": 1, "device": "cpu"}
    file = folder / "bench.yaml"
    file.write_text(yaml.safe_dump(given))
    return file


def wait_until_healthy(head: Head, url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if httpx.get(f"{url}/healthz").is_success:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            pytest.fail(serve(head, "status"))
        time.sleep(1)


def living_actors(head: Head) -> list[str]:
    # Those that ended are among them: of none at all Ray gives no JSON.
    listed = ray_command(head, "list", "actors", "--limit", "1000", "--format", "json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    return [actor["name"] for actor in json.loads(listed.stdout) if actor["state"] == "ALIVE"]


def test_the_command_deploys_a_file_that_gives_verdicts_and_nothing_of_it_is_left(head: Head, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve(head, "deploy", str(file_of(tmp_path, port)))
    try:
        wait_until_healthy(head, url)
        assert yaml.safe_load(serve(head, "status"))["applications"]["bench"]["status"] == "RUNNING"
        with BenchClient(url) as client:
            answer = client.evaluate(
                kernel_code=KERNEL.format(name="k", added=1.0, block=16), reference_torch_code=REFERENCE,
                input_shapes={"x": {"shape": [64], "dtype": "float32"}}, n_correctness=2,
            )  # fmt: skip
        assert answer["status"] == "ok"
        assert any(name.startswith("kb-bench") for name in living_actors(head))
    finally:
        serve(head, "shutdown", "-y")
    deadline = time.monotonic() + PATIENCE_S
    while left := [name for name in living_actors(head) if name.startswith(("kb-bench", "SERVE_", "bench"))]:
        assert time.monotonic() < deadline, left
        time.sleep(1)
