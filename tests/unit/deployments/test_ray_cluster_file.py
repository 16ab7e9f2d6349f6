"""`ray_cluster.yaml` as it stands, with its options, and what lies beside it: roles' policies, images' variables."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.unit.deployments.test_ray_cluster import FILE, ROOT


def test_pools_start_from_no_node_and_go_back_when_idle() -> None:
    config = yaml.safe_load(FILE.read_text())
    workers = {name: node for name, node in config["available_node_types"].items() if name != "head"}
    assert all(node["min_workers"] == 0 and node["idle_timeout_s"] > 0 for node in workers.values())
    assert workers["bench_spot"]["max_workers"] == 0, "spot is an option"
    assert config["provider"]["cache_stopped_nodes"] is False


@pytest.mark.parametrize("pool", ["serve", "bench", "train"])
def test_an_image_asks_nvidias_runtime_for_gpus_and_cuda(pool: str) -> None:
    lines = (ROOT / "docker" / f"{pool}.Dockerfile").read_text().replace("\\\n", " ").splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
    variables = {word for line in lines[last:] if line.startswith("ENV ") for word in line.split()[1:]}
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= variables


def test_the_optional_token_of_a_hub_is_a_file_on_serving_nodes_alone() -> None:
    # The option as it stands, with its comment signs taken off.
    lines = FILE.read_text().splitlines()
    start = lines.index("    # initialization_commands:")
    end = next(number for number in range(start, len(lines)) if not lines[number].strip())
    taken = [
        re.sub(r"^    # ", "    ", line) if number in range(start, end) else line for number, line in enumerate(lines)
    ]
    config, plain = yaml.safe_load("\n".join(taken)), yaml.safe_load(FILE.read_text())
    pools = config["available_node_types"]
    commands = pools["serve"].pop("initialization_commands")
    assert config == plain, "nothing else is touched"
    assert all(isinstance(command, str) for command in commands)
    # A pool's own commands replace those of the file, as Ray's autoscaler has it.
    assert commands[0] == config["initialization_commands"][0]
    write = commands[-1]
    scratch, home = pools["serve"]["docker"]["worker_run_options"]
    host, inside = scratch.removeprefix("--volume ").split(":")
    # The hub's library reads HF_HOME/token.
    assert write.endswith(f"> {host}{home.partition('HF_HOME=')[2].removeprefix(inside)}/token")
    assert write.startswith("umask 077 && aws ssm get-parameter ")
    assert f"--region {config['provider']['region']} " in write
    for pool in ("head", "bench", "bench_spot", "train"):
        assert "ssm" not in str(pools[pool])


def test_a_node_knows_its_region() -> None:
    config = yaml.safe_load(FILE.read_text())
    assert f"--env AWS_DEFAULT_REGION={config['provider']['region']}" in config["docker"]["run_options"]


@pytest.mark.parametrize("pool", ["head", "serve", "train"])
def test_a_policy_reaches_one_bucket(pool: str) -> None:
    policy = json.loads((ROOT / "deployments" / "aws" / f"{pool}.json").read_text())
    of_s3 = [s for s in policy["Statement"] if str(s["Action"]).count("s3:")]
    assert of_s3
    assert {s["Resource"] for s in of_s3} <= {"arn:aws:s3:::YOUR-BUCKET", "arn:aws:s3:::YOUR-BUCKET/*"}
