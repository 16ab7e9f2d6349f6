"""`python -m kb_ray.serve FILE`: what a file says of an application besides its arguments takes effect; the command
tells how to join its Ray, and ends on a signal with its exit code, without noise.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

from kb_ray import cluster
from kb_ray.process_identity import born

ROOT = Path(__file__).parents[2]
APPLICATION = """
import logging, os, subprocess
from ray import serve

@serve.deployment(name="Echo", num_replicas=1, ray_actor_options={"num_cpus": 0})
class Echo:
    def __init__(self):
        # As vLLM starts its engine, but that this one heeds nobody's end.
        command = ["sleep", os.environ.get("ENGINE_S", "0")]
        self._engine = subprocess.Popen(command, start_new_session=True).pid

    def reconfigure(self, said):
        self._said = said

    def __call__(self, request):
        level = logging.getLogger("ray.serve").getEffectiveLevel()
        return {"said": self._said, "own": os.environ.get("OWN"), "level": logging.getLevelName(level),
                "engine": self._engine}

def build(args):
    return Echo.bind()
"""
FILE = {
    "proxy_location": "HeadOnly",
    "http_options": {"host": "127.0.0.1"},
    "applications": [
        {
            "name": "echo",
            "route_prefix": "/echo",
            "import_path": "an_application_of_a_test:build",
            "runtime_env": {"env_vars": {"OWN": "of the application"}},
            "logging_config": {"log_level": "ERROR"},
            "deployments": [{"name": "Echo", "user_config": {"to": "you"}}],
        }
    ],
}


def _serving(tmp_path: Path, **env: str) -> subprocess.Popen[str]:
    """The command as a script starts it by `&`, with Ctrl-C ignored, in a process group of its own."""
    (tmp_path / "an_application_of_a_test.py").write_text(APPLICATION)
    file = tmp_path / "echo.yaml"
    file.write_text(yaml.safe_dump(FILE))
    environment = {**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": str(tmp_path), **env}
    command = [sys.executable, "-m", "kb_ray.serve", str(file), "--port", str(_free_port())]
    return subprocess.Popen(
        ["bash", "-c", 'trap "" INT; exec "$@"', "bash", *command], cwd=ROOT, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
    )  # fmt: skip


def _ended(served: subprocess.Popen[str], number: signal.Signals, *, group: bool = False) -> str:
    """What it says after a signal, to it alone or to its group, until it ends by it."""
    (os.killpg if group else os.kill)(served.pid, number)
    try:
        return served.communicate(timeout=60)[0]
    finally:
        served.kill()


def test_overrides_environment_and_logging_of_a_file_take_effect(tmp_path: Path) -> None:
    with _serving(tmp_path) as served:
        try:
            assert served.stdout is not None
            told = next((line for line in served.stdout if line.startswith("serving at ")), None)
            assert told is not None, "it ended without serving"
            with urllib.request.urlopen(told.split()[2], timeout=30) as answer:
                found = json.load(answer)
            joining = re.fullmatch(
                r"its Ray: `--ray-address (\S+)` .*; dashboard at (http://\S+)\n", served.stdout.readline()
            )
            assert joining is not None
            cluster.probe(joining[1], "the command")
            with urllib.request.urlopen(joining[2], timeout=30) as answer:
                assert answer.status == 200
        finally:
            rest = _ended(served, signal.SIGINT)
    assert (served.returncode, rest) == (128 + signal.SIGINT, "stopping ...\n")
    del found["engine"]
    assert found == {"said": {"to": "you"}, "own": "of the application", "level": "ERROR"}


def test_sigterm_to_the_whole_group_leaves_nothing_of_what_replicas_have_started(tmp_path: Path) -> None:
    """As `timeout` and supervisors send it: Ray ends before Serve could be asked to end."""
    with _serving(tmp_path, ENGINE_S="600") as served:
        try:
            assert served.stdout is not None
            told = next((line for line in served.stdout if line.startswith("serving at ")), None)
            assert told is not None, "it ended without serving"
            with urllib.request.urlopen(told.split()[2], timeout=30) as answer:
                engine = json.load(answer)["engine"]
            assert born(engine) is not None
        finally:
            _ended(served, signal.SIGTERM, group=True)
    assert served.returncode == 128 + signal.SIGTERM
    assert born(engine) is None


def test_sigterm_while_ray_starts_has_the_exit_code_of_any_other(tmp_path: Path) -> None:
    with _serving(tmp_path) as served:
        try:
            assert served.stdout is not None
            assert served.stdout.readline() == "starting (a minute or more) ...\n"
            time.sleep(1)
        finally:
            _ended(served, signal.SIGTERM)
    assert served.returncode == 128 + signal.SIGTERM


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
