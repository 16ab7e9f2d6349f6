"""Deployments that cannot come up: what the cluster lacks, and a real vLLM that fails, are told with what to do."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kb_ray import serve
from kb_ray.errors import ConfigError
from kb_ray.serve_file import find, names, read

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_gpus(ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of the cluster without the GPUs that this machine may have."""
    import ray

    def bare(node: dict[str, Any]) -> dict[str, Any]:
        held = {k: v for k, v in node["Resources"].items() if k != "GPU" and not k.startswith("accelerator_type:")}
        return {**node, "Resources": held}

    nodes = [bare(node) for node in ray.nodes()]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)


@pytest.mark.parametrize(("name", "gpus"), [("glm45_air", 4), ("qwen25_coder_7b", 1)])
def test_a_gpu_deployment_on_a_cluster_without_gpus_is_refused_with_what_is_missing(
    no_gpus: None, name: str, gpus: int
) -> None:
    with pytest.raises(ConfigError, match=rf"needs {gpus} H100 GPUs on one node .* the largest node here has 0"):
        serve.deploy(read(find(name)), port=_free_port())


def test_an_engine_argument_that_vllm_does_not_have_is_named(smollm2_folder: Path) -> None:
    (application,) = read(find("smollm2_cpu"))["applications"]
    model = application["args"]["models"][0]
    model |= {"source": str(smollm2_folder), "source_env": None}
    model["engine"]["max_modellen"] = 1024
    with pytest.raises(ConfigError, match=r"application smollm2 cannot be built: .*max_modellen") as caught:
        serve._build(application)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the check says of every deployment, and at last of one with slips of the pen under `engine`."""
    config = read(find("glm45_air"))
    config["applications"][0]["args"]["models"][0]["engine"] |= {"tensor_paralel_size": 4, "reasoning_parser": "glm45x"}
    wrong = tmp_path_factory.mktemp("wrong") / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [sys.executable, "-c", _CHECK, *names(), str(wrong)], capture_output=True, text=True, timeout=590, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


_CHECK = """
import contextlib, io, json, sys
from kb_ray import serve
found = []
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = serve.main([name, "--check"])
    found.append({"name": name, "code": code, "out": out.getvalue(), "err": err.getvalue().splitlines()})
print("\\n" + json.dumps(found))
"""


def test_the_pinned_vllm_knows_every_name_under_engine_of_every_deployment(checked: list[dict[str, Any]]) -> None:
    for found in checked[:-1]:
        assert (found["code"], found["err"]) == (0, []), found["name"]
        assert found["out"].endswith("nothing is wrong with it\n"), found["name"]


def test_the_check_asks_vllm_for_names_of_arguments_and_parsers(checked: list[dict[str, Any]]) -> None:
    assert checked[-1]["code"] == 2
    where = "error: deployment argument models.0.engine."
    told = [line for line in checked[-1]["err"] if line.startswith("error: ")]
    assert told == [
        f"{where}tensor_paralel_size is no argument of this vLLM; did you mean tensor_parallel_size?",
        f"{where}reasoning_parser: this vLLM has no 'glm45x'; did you mean glm45?",
    ]


@pytest.mark.slow
def test_a_model_that_fails_to_start_shows_its_log_and_says_what_to_do(smollm2_folder: Path, tmp_path: Path) -> None:
    config = read(find("smollm2_cpu"))
    model = config["applications"][0]["args"]["models"][0]
    model["source"] = str(smollm2_folder)
    # Room for 16 tokens in the cache.
    model["engine"]["num_gpu_blocks_override"] = 1
    model["deployment"]["max_constructor_retry_count"] = 1
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "kb_ray.serve", str(tmp_path / "full.yaml"), "--port", str(_free_port())]
    environment = {**os.environ, "RAY_ADDRESS": "local", "KB_RAY_SMOLLM2": str(smollm2_folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=590, cwd=ROOT, env=environment)
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(r"error: application smollm2 did not come up: the KV cache does not fit .* max_model_len", last)
    assert re.search(r"^log: .*cache blocks", done.stderr, re.MULTILINE)


BROKEN = """
from ray import serve

@serve.deployment(name="Broken", max_constructor_retry_count=1, ray_actor_options={"num_cpus": 0})
class Broken:
    def __init__(self):
        raise RuntimeError("a cause that nobody knows")

def build(args):
    return Broken.bind()
"""


def test_logs_are_named_where_they_are_when_ray_has_ended(tmp_path: Path) -> None:
    (tmp_path / "a_broken_application.py").write_text(BROKEN)
    application = {"name": "broken", "route_prefix": "/", "import_path": "a_broken_application:build"}
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump({"applications": [application]}))
    command = [sys.executable, "-m", "kb_ray.serve", str(tmp_path / "broken.yaml"), "--port", str(_free_port())]
    environment = {**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
    assert done.returncode == 1, done.stderr
    assert "a cause that nobody knows" in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    named = re.fullmatch(
        r"error: application broken did not come up: its replicas' logs are in (\S+) of the machine .*", last
    )
    assert named, last
    texts = [path.read_text(errors="replace") for path in Path(named[1]).rglob("*") if path.is_file()]
    assert any("a cause that nobody knows" in text for text in texts)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
