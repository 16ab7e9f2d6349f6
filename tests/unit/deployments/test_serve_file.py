"""Deployment files that cannot be used are refused in one line before anything starts."""

from __future__ import annotations

import copy
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
from kb_ray.serve_file import FOLDER, check, faults, find, names, read
from kb_ray.serve_needs import grows, telling

pytestmark = pytest.mark.usefixtures("no_engine_asked")
ROOT = Path(__file__).parents[3]


def changed(*path: int | str, **fields: Any) -> dict[str, Any]:
    """The smallest deployment, with `fields` set in the part that `path` leads to."""
    config = copy.deepcopy(read(find("smollm2_cpu")))
    part: Any = config
    for step in path:
        part = part[step]
    part.update(fields)
    return config


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (changed(http_option={}), r"http_option is no field .* did you mean http_options\?"),
        (changed("http_options", prot=1), r"http_options\.prot is no field .* did you mean port\?"),
        (changed("http_options", port=0), "deployment file: http_options.port: 0 is no port, they go from 1 to 65535"),
        (changed("http_options", port="70000"), "http_options.port: 70000 is no port"),
        (changed("http_options", port="x"), r"http_options\.port: Input should be a valid integer"),
        (
            changed("applications", 0, rout_prefix="/"),
            r"applications\.0\.rout_prefix is no field .* did you mean route_prefix\?",
        ),
        (changed("applications", 0, deployments=[{"name": "X", "replicas": 2}]), r"deployments\.0\.replicas is no"),
        (
            changed("applications", 0, deployments=[{"name": "X", "autoscaling_config": {"max_replica": 2}}]),
            r"deployments\.0\.autoscaling_config\.max_replica is no field .* did you mean max_replicas\?",
        ),
        (
            changed("applications", 0, deployments=[{"name": "X", "ray_actor_options": {"num_cpu": 2}}]),
            r"deployments\.0\.ray_actor_options\.num_cpu is no field .* did you mean num_cpus\?",
        ),
        (
            changed("applications", 0, deployments=[{"name": "X", "request_router_config": {"router_class": "a.b"}}]),
            r"deployments\.0\.request_router_config\.router_class is no field .* did you mean request_router_class\?",
        ),
        (
            changed("applications", 0, deployments=[{"name": "X", "autoscaling_config": {"min_replicas": 3}}]),
            r"deployment file: applications\.0\.deployments\.0\.autoscaling_config: max_replicas .* min_replicas",
        ),
        (
            changed("applications", 0, runtime_env={"env_vars": {"HF_TOKEN": "hf_x"}}),
            r"applications\.0\.runtime_env\.env_vars\.HF_TOKEN would stand in Ray's logs",
        ),
        (
            changed(
                "applications",
                0,
                deployments=[{"name": "X", "ray_actor_options": {"runtime_env": {"env_vars": {"password": "hf_x"}}}}],
            ),
            r"deployments\.0\.ray_actor_options\.runtime_env\.env_vars\.password would stand in Ray's logs",
        ),
        (changed(applications=[]), "deployment file: applications is empty"),
        (changed("applications", 0, import_path="deployments.nowhere:build"), "import_path .* fails: No module"),
        (changed("applications", 0, import_path="deployments.app:make"), "import_path .* fails: .*no attribute 'make'"),
        (changed("applications", 0, "args", models=[]), "deployment argument models: List should have at least 1"),
        (
            changed("applications", 0, "args", "models", 0, gpus=1),
            r"deployment argument models\.0\.gpus: no such field",
        ),
        (changed("applications", 0, "args", "models", 0, device="tpu"), r"models\.0\.device: Input should be 'cpu'"),
    ],
)
def test_a_wrong_field_is_named_with_its_place_and_what_was_meant(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check(config)
    assert "\n" not in str(caught.value)
    assert "hf_x" not in str(caught.value)


@pytest.mark.parametrize("name", names())
def test_every_deployment_of_the_folder_passes(name: str) -> None:
    check(read(find(name)))


def test_only_what_can_be_served_has_a_name() -> None:
    assert {"glm45_air", "gpt_oss_120b", "qwen3_235b", "qwen25_coder_7b", "smollm2_cpu"} <= set(names())
    assert {"rayservice", "rayjob"} & set(names()) == set()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no deployment glm-45: did you mean glm45_air\?"):
        find("glm-45")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no_such_model"], "error: no deployment no_such_model: "),
        ([str(FOLDER / "rayjob.yaml")], "error: .*rayjob.yaml "),
        (["{wrong}"], "error: deployment file: http_option is no field"),
    ],
)
def test_the_command_ends_with_one_line_and_code_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(changed(http_option={})))
    words = [word.format(wrong=wrong) for word in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "kb_ray.serve", *words], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert re.match(said, done.stderr)


def test_a_file_is_checked_without_being_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main(["qwen3_235b", "--check"]) == 0
    assert capsys.readouterr() == ("nothing is wrong with it\n", "")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(changed("http_options", prot=1, port="x")))
    assert serve.main([str(wrong), "--check"]) == 2
    told = capsys.readouterr()
    assert told.out == "2 to mend\n"
    assert [line.split(" ")[3] for line in told.err.splitlines()] == ["http_options.prot", "http_options.port:"]


@pytest.mark.parametrize("workers", [[8, 0], [-1, 2], [0, 0], -1])
def test_numbers_of_workers_that_there_cannot_be_are_told(workers: list[int] | int) -> None:
    config = read(find("bench"))
    config["applications"][0]["args"] |= {"workers": workers, "queu_limit": 5}
    first, second = faults(config)
    assert first == "deployment argument queu_limit: no such field; did you mean queue_limit?"
    assert second.startswith("deployment argument workers: ")


def test_bounds_and_numbers_of_workers_that_there_can_be_pass() -> None:
    config = read(find("bench"))
    for workers in (None, 0, 3, [0, 8], [2, 2]):
        config["applications"][0]["args"]["workers"] = workers
        assert list(faults(config)) == []


def test_every_application_is_looked_at() -> None:
    config = changed("applications", 0, "args", models=[])
    config["applications"].append({"name": "b", "route_prefix": "/b", "import_path": "deployments.bench_app:build"})
    config["applications"][1]["args"] = {"queue": 1}
    first, second = faults(config)
    assert "models: List should have at least 1" in first
    assert "queue: no such field; did you mean queue_limit?" in second


def test_arguments_are_looked_at_where_serves_own_fields_are_wrong() -> None:
    config = changed("applications", 0, "args", models=[])
    config["applications"] += [{"name": "b"}, {"name": "c", "import_path": "deployments.app:build", "args": 5}, "d"]
    config["http_option"] = {}
    found = list(faults(config))
    assert any("http_option is no field" in fault for fault in found)
    assert sum("models: List should have at least 1" in fault for fault in found) == 1
    assert all(sum(f"applications.{n}" in fault for fault in found) >= 1 for n in (1, 2, 3)), found


def test_a_port_in_use_is_said_before_ray_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "kb_ray.serve", "smollm2_cpu", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: cannot listen on 127.0.0.1:{port} (Address already in use): end what serves there, or give "
        "another --port\n"
    )


def test_port_0_is_refused_before_ray_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_check_vllm", lambda config: None)
    monkeypatch.setattr("kb_ray.cluster.connect", lambda *_: pytest.fail("Ray was started"))
    assert serve.main(["smollm2_cpu", "--port", "0"]) == 2
    assert capsys.readouterr() == ("", "error: 0 is no port: they go from 1 to 65535\n")


def test_a_head_without_cpus_promises_nodes() -> None:
    assert grows([{"memory": 1.0}])
    assert not grows([{"CPU": 2.0}, {"CPU": 8.0, "GPU": 8.0}])


def test_the_lines_that_tell_a_failure_are_picked_from_a_long_log() -> None:
    log = "INFO loading\n\x1b[31mtorch.OutOfMemoryError: CUDA out of memory\x1b[0m\nKeyError: 'x'\nINFO bye\n" * 3
    assert telling(log) == ["torch.OutOfMemoryError: CUDA out of memory"]
    assert telling("INFO a\nValueError: no such thing\nINFO b") == ["ValueError: no such thing"]
    assert telling("INFO nothing wrong") == []
    cause = (
        "Value error, Cannot find the config file for awq [type=value_error, input_value=ArgsKwargs(()), input_type=A]"
    )
    validation = "RuntimeError: Failed to create vLLM engine config: 1 validation error for VllmConfig"
    assert telling(f"{validation}\n  {cause}\n    For further information visit x") == [validation, cause]
