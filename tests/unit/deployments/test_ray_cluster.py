"""`ray_cluster.yaml` as Ray's own launcher and autoscaler read it, against an emulated EC2.

Ray's code validates and fills in the file, creates the head and a node of each pool, and gives the commands that would
set them up; those are recorded, not run. What EC2 was asked for is read back from the emulator.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILE = ROOT / "ray_cluster.yaml"
REGISTRY = "registry.example/team"
METADATA = {
    "HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled", "HttpProtocolIpv6": "disabled",
}  # fmt: skip
SPOT = 16
"""Spot nodes at most, where the file says none: an option."""
ANSWERS = {
    "json .Config.Env": b'["HOME=/home/ray"]', "printenv HOME": b"/home/ray", "command -v docker": b"docker",
    # With NVIDIA's container toolkit on the host, as docs/cluster.md asks of it.
    "{{.Runtimes}}": b"map[nvidia:{nvidia-container-runtime [] <nil>} runc:{runc [] <nil>}]",
}  # fmt: skip


class Recorder:
    """In place of `subprocess` in Ray's launcher: keeps commands, answers the few questions that it asks."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    def check_call(self, command: list[str], *_: Any, **__: Any) -> None:
        self.commands.append(" ".join(command))

    def check_output(self, command: list[str], *_: Any, **__: Any) -> bytes:
        text = " ".join(command)
        self.commands.append(text)
        return next((answer for asked, answer in ANSWERS.items() if asked in text), b"")

    def about(self, pattern: str) -> list[str]:
        return [command for command in self.commands if re.search(pattern, command)]


class Cluster:
    """What Ray made of the file. `image`: the AMI that was filled in; `config`: as the launcher filled in the rest;
    `remote`: as the head's autoscaler has it."""

    def __init__(self, ec2: Any, image: str, config: dict[str, Any], remote: Path) -> None:
        self.ec2, self.image, self.config, self.remote = ec2, image, config, remote
        self.head, self.bench, self.calls = Recorder(), Recorder(), set[str]()

    def instances(self, node_type: str) -> list[dict[str, Any]]:
        named = [{"Name": "tag:ray-user-node-type", "Values": [node_type]}]
        found = self.ec2.describe_instances(Filters=named)["Reservations"]
        return [instance for reservation in found for instance in reservation["Instances"]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The head and a node of each pool, created by Ray. Takes 15 seconds."""
    moto = pytest.importorskip("moto", reason="pip install 'moto[ec2,iam]'")
    home = tmp_path_factory.mktemp("home")
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("not-a-real-token")
    # In this order, so that what moto puts into the environment does not outlive it.
    with moto.mock_aws(), pytest.MonkeyPatch.context() as patch:
        for name, value in {"HOME": home, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
            patch.setenv(name, str(value))
        patch.setenv("AWS_DEFAULT_REGION", "us-west-2")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield _created(home, patch)


def _created(home: Path, patch: pytest.MonkeyPatch) -> Cluster:
    import boto3
    from ray.autoscaler._private import commands

    ec2, iam = boto3.client("ec2"), boto3.client("iam")
    for pool in ("head", "serve", "train"):
        iam.create_instance_profile(InstanceProfileName=f"kb-ray-{pool}")
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["ubuntu*"]}])["Images"][0]["ImageId"]
    path = home / "ray_cluster.yaml"
    path.write_text(filled(image).replace("max_workers: 0  #", f"max_workers: {SPOT}  #"))
    config = commands._bootstrap_config(yaml.safe_load(path.read_text()), no_config_cache=True)

    made = Cluster(ec2, image, config, home / "remote.json")
    patch.setattr(time, "sleep", lambda _: None)  # the launcher waits for machines to boot
    commands.get_or_create_head_node(config, str(path), False, False, True, None, _runner=made.head)
    _, written = commands._set_up_config_for_head_node(config, commands._get_node_provider(
        config["provider"], config["cluster_name"]), False)  # fmt: skip
    made.remote.write_text(Path(written.name).read_text())
    _grow(made, {"bench": 1, "bench_spot": 1, "serve": 1, "train": 1})
    return made


def _grow(made: Cluster, shape: dict[str, int]) -> None:
    """What the autoscaler on the head does when work waits: launch, then set up, here a bench node alone."""
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.instance_manager.node_provider import NodeProviderAdapter
    from ray.autoscaler.v2.instance_manager.ray_installer import RayInstaller
    from ray.core.generated.instance_manager_pb2 import Instance

    remote = json.loads(made.remote.read_text())
    # The head's paths lie in its container; here they are those of this machine.
    remote["auth"]["ssh_private_key"] = made.config["auth"]["ssh_private_key"]
    config = AutoscalingConfig(remote)

    class Reader:
        def get_cached_autoscaling_config(self) -> AutoscalingConfig:
            return config

    provider = AWSNodeProvider(remote["provider"], remote["cluster_name"])
    for service in (provider.ec2, provider.ec2_fail_fast):
        service.meta.client.meta.events.register(
            "before-call.ec2", lambda model, **_: made.calls.add(f"ec2:{model.name}")
        )
    adapter = NodeProviderAdapter(provider, Reader())
    for node_type, count in shape.items():
        adapter._launch_nodes_by_type(node_type, count, "request")
    assert adapter.poll_errors() == []
    provider.non_terminated_nodes({})
    (bench,) = made.instances("bench")
    instance = Instance(instance_type="bench", cloud_instance_id=bench["InstanceId"])
    RayInstaller(provider, config, made.bench).install_ray(instance, "10.0.0.1")
    spot = made.instances("bench_spot")[0]["InstanceId"]
    provider.terminate_node(spot)


def labels(recorder: Recorder, command: str) -> dict[str, str]:
    """With what labels a node's Ray starts."""
    (start,) = recorder.about(command)
    (found,) = re.findall(r"RAY_OVERRIDE_LABELS=[^{]*(\{[^}]*\})", start)
    read: dict[str, str] = json.loads(found)
    return read


def filled(image: str) -> str:
    """The file with its places filled in."""
    return FILE.read_text().replace("YOUR-REGISTRY", REGISTRY).replace("YOUR-AMI", image)


def test_the_launcher_takes_the_file_and_knows_each_pools_resources(cluster: Cluster) -> None:
    types = cluster.config["available_node_types"]
    assert types["head"]["resources"]["CPU"] == 0
    gpus = {name: node["resources"].get("GPU", 0) for name, node in types.items()}
    assert gpus == {"head": 0, "serve": 8, "bench": 1, "bench_spot": 1, "train": 8}
    assert all(node["resources"]["accelerator_type:H100"] == 1 for name, node in types.items() if name != "head")


def test_what_runs_in_a_pool_can_find_it_while_it_has_no_node(cluster: Cluster) -> None:
    from deployments.app import NODES
    from kb_ray.bench.placement import POOL_LABEL

    remote = json.loads(cluster.remote.read_text())["available_node_types"]
    pools = {name: node["labels"]["kb-pool"] for name, node in remote.items()}
    assert pools == {"head": "head", "serve": "serve", "bench": "bench", "bench_spot": "bench", "train": "train"}
    assert all(node["labels"]["ray.io/accelerator-type"] == "H100" for name, node in remote.items() if name != "head")
    assert POOL_LABEL == ("kb-pool", "bench")
    assert NODES == {"kb-pool": "!in(bench, train)"}


def test_the_head_is_a_small_on_demand_instance_with_its_role(cluster: Cluster) -> None:
    (head,) = cluster.instances("head")
    assert head["InstanceType"] == "m7i.4xlarge"
    assert head["ImageId"] == cluster.image
    assert head.get("InstanceLifecycle") != "spot"
    assert head["IamInstanceProfile"]["Arn"].endswith("/kb-ray-head")
    assert {key: head["MetadataOptions"][key] for key in METADATA} == METADATA


@pytest.mark.parametrize(("node_type", "spot"), [("bench", False), ("bench_spot", True)])
def test_a_bench_node_has_no_role_and_its_market(cluster: Cluster, node_type: str, spot: bool) -> None:
    (node,) = cluster.instances(node_type)
    (head,) = cluster.instances("head")
    assert node["InstanceType"] == "p5.4xlarge"
    assert node["ImageId"] == cluster.image
    assert "IamInstanceProfile" not in node
    assert {key: node["MetadataOptions"][key] for key in METADATA} == METADATA
    assert (node.get("InstanceLifecycle") == "spot") is spot
    assert node["SubnetId"] == head["SubnetId"], "one zone"


@pytest.mark.parametrize("pool", ["serve", "train"])
def test_a_node_that_serves_or_trains_has_its_own_role_and_is_paid_for_on_demand(cluster: Cluster, pool: str) -> None:
    (node,) = cluster.instances(pool)
    (head,) = cluster.instances("head")
    assert (node["InstanceType"], node["ImageId"]) == ("p5.48xlarge", cluster.image)
    assert node["IamInstanceProfile"]["Arn"].endswith(f"/kb-ray-{pool}")
    assert node.get("InstanceLifecycle") != "spot"
    assert {key: node["MetadataOptions"][key] for key in METADATA} == METADATA
    assert node["SubnetId"] == head["SubnetId"], "one zone"


def test_every_pool_asks_for_its_metadata_options_itself(cluster: Cluster) -> None:
    # What EC2, and the emulator, do where nobody asks is not ours to rely on.
    nodes = json.loads(cluster.remote.read_text())["available_node_types"]
    assert {name: node["node_config"]["MetadataOptions"] for name, node in nodes.items()} == dict.fromkeys(
        ("head", "serve", "bench", "bench_spot", "train"), METADATA
    )


def test_all_pools_may_be_full_at_once(cluster: Cluster) -> None:
    remote = json.loads(cluster.remote.read_text())
    pools = {name: node["max_workers"] for name, node in remote["available_node_types"].items() if name != "head"}
    assert pools["bench_spot"] == SPOT
    assert sum(pools.values()) <= remote["max_workers"]


def test_a_bench_node_is_walled_off_before_its_container_starts(cluster: Cluster) -> None:
    wall = [cluster.bench.commands.index(command) for command in cluster.bench.about(r"169\.254\.169\.254|fd00:ec2")]
    (start,) = [cluster.bench.commands.index(command) for command in cluster.bench.about("docker run")]
    assert len(wall) == 3
    assert max(wall) < start
    run = cluster.bench.commands[start]
    assert f" {REGISTRY}/kb-ray-bench:" in run
    assert "--cap-drop ALL" in run
    assert "no-new-privileges" in run
    assert "--privileged" not in run


def test_a_bench_nodes_container_gets_the_hosts_gpus(cluster: Cluster) -> None:
    (run,) = cluster.bench.about("docker run")
    assert "--runtime=nvidia" in run
    # The runtime gives none to a container without the variable: from `docker run` or, as here, from the image.
    assert "NVIDIA_VISIBLE_DEVICES" not in run


def test_nodes_start_with_their_labels_the_token_and_no_key_of_another_node(cluster: Cluster) -> None:
    from deployments.bench_app import HEAD

    assert labels(cluster.bench, "ray start --address") == {"kb-pool": "bench", "ray.io/accelerator-type": "H100"}
    # The front of verdicts over HTTP finds the head, where its tokens are, by this label.
    assert labels(cluster.head, "ray start --head") == HEAD
    for recorder in (cluster.head, cluster.bench):
        (run,) = recorder.about("docker run")
        assert "--env RAY_AUTH_MODE=token" in run
        assert "/home/ray/.ray" in run
        assert "not-a-real-token" not in " ".join(recorder.commands)
    copied = " ".join(cluster.bench.about("rsync"))
    assert ".ray/" in copied
    assert "bootstrap_key" not in copied


def test_the_head_runs_the_serving_image_and_shows_its_dashboard_to_itself_only(cluster: Cluster) -> None:
    (run,) = cluster.head.about("docker run")
    assert f" {REGISTRY}/kb-ray-serve:" in run
    (start,) = cluster.head.about("ray start --head")
    assert "--dashboard-host=127.0.0.1" in start
    assert not cluster.head.about("pip install")


def test_the_heads_policy_allows_what_the_autoscaler_asks_and_little_more(cluster: Cluster) -> None:
    policy = json.loads((ROOT / "deployments" / "aws" / "head.json").read_text())
    listed = (s["Action"] if isinstance(s["Action"], list) else [s["Action"]] for s in policy["Statement"])
    allowed = {action for actions in listed for action in actions}
    assert cluster.calls - allowed == set()
    assert {"ec2:RunInstances", "ec2:TerminateInstances"} <= cluster.calls
    assert "iam:PassRole" in allowed
    assert not {action for action in allowed if "*" in action}
