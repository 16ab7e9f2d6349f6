"""`python -m kb_ray.serve FILE`: what a file says of an application besides its arguments takes effect."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
APPLICATION = """
import logging, os
from ray import serve

@serve.deployment(name="Echo", num_replicas=1, ray_actor_options={"num_cpus": 0})
class Echo:
    def reconfigure(self, said):
        self._said = said

    def __call__(self, request):
        level = logging.getLogger("ray.serve").getEffectiveLevel()
        return {"said": self._said, "own": os.environ.get("OWN"), "level": logging.getLevelName(level)}

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


def test_overrides_environment_and_logging_of_a_file_take_effect(tmp_path: Path) -> None:
    (tmp_path / "an_application_of_a_test.py").write_text(APPLICATION)
    file = tmp_path / "echo.yaml"
    file.write_text(yaml.safe_dump(FILE))
    environment = {**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "kb_ray.serve", str(file), "--port", str(_free_port())]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            told = next((line for line in served.stdout if line.startswith("serving at ")), None)
            assert told is not None, "it ended without serving"
            with urllib.request.urlopen(told.split()[2], timeout=30) as answer:
                found = json.load(answer)
        finally:
            served.send_signal(signal.SIGINT)
            served.stdout.read()
    assert served.returncode == 0
    assert found == {"said": {"to": "you"}, "own": "of the application", "level": "ERROR"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
