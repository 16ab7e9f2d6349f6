"""Pods that Ray's autoscaler would bring for what KubeRay's files run: its own reading of their groups, its scheduler.

What is asked for is what Serve and the bench pool ask. How the head's process hands that to the scheduler (a placement
group as a gang, labels as selectors) is repeated here. No pod and no Ray is started.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments import app
from kb_ray.bench.placement import place
from kb_ray.config import RunConfig
from kb_ray.config_sources import parse_command
from tests.unit.deployments.test_kuberay import cluster, spec

Placing = tuple[list[dict[str, float]], list[dict[str, str]]]
_BUILT = """
import json, sys
from types import SimpleNamespace
import ray
from deployments import app
from ray.serve._private.build_app import build_app

# A deployment takes over the environment of the process that builds it: asked for here, it would start a Ray.
ray.get_runtime_context = lambda: SimpleNamespace(runtime_env={})
built = build_app(app.build(json.load(sys.stdin)), name="served")
(model,) = [part._replica_config for part in built.deployments if part._replica_config.placement_group_bundles]
assert model.placement_group_strategy == "STRICT_PACK"
assert not ray.is_initialized()
print("\\n" + json.dumps([model.placement_group_bundles, model.placement_group_bundle_label_selector]))
"""


def autoscaling(kind: str) -> Any:
    """What Ray's autoscaler makes of the file's cluster."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

    named = {"name": "of-a-test", "namespace": "default"}
    derived = _derive_autoscaling_config_from_ray_cr({"metadata": named, "spec": cluster(kind)})
    return AutoscalingConfig(derived, skip_content_hash=True)


def brought(kind: str, requests: list[Any], gangs: list[Any]) -> tuple[dict[str, int], list[Any]]:
    """Pods that it brings, by their group, where there is none; and what is asked for and no pod can hold."""
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    config = autoscaling(kind)
    asked = SchedulingRequest(
        disable_launch_config_check=config.disable_launch_config_check(),
        node_type_configs=config.get_node_type_configs(), max_num_nodes=config.get_max_num_nodes(),
        resource_requests=ResourceRequestUtil.group_by_count(requests), gang_resource_requests=gangs,
    )  # fmt: skip
    reply = ResourceDemandScheduler().schedule(asked)
    refused = [*reply.infeasible_resource_requests, *reply.infeasible_gang_resource_requests]
    return {launch.instance_type: launch.count for launch in reply.to_launch}, refused


def request(resources: dict[str, float], selector: dict[str, str], together: str | None = None) -> Any:
    """Resources of one node with these labels; those with the same word in `together` of the same node."""
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    affinity = ResourceRequestUtil.PlacementConstraintType.AFFINITY
    constraints = [(affinity, f"_PG_{together}", "")] if together else None
    return ResourceRequestUtil.make(resources, constraints, [[selected(*label) for label in selector.items()]])


def selected(key: str, condition: str) -> tuple[str, int, list[str]]:
    """A label's condition, `VALUE` or `!in(VALUE, VALUE)`, as the scheduler has it."""
    from ray.core.generated.common_pb2 import LabelSelectorOperator

    word = "LABEL_OPERATOR_NOT_IN" if condition.startswith("!") else "LABEL_OPERATOR_IN"
    return key, LabelSelectorOperator.Value(word), re.findall(r"[\w.-]+", re.sub(r"^!?in\(", "(", condition))


def gang(name: str, bundles: list[dict[str, float]], selectors: list[dict[str, str]]) -> Any:
    """A placement group that is STRICT_PACK."""
    from ray.core.generated.autoscaler_pb2 import GangResourceRequest

    found = GangResourceRequest()
    requests = [request(bundle, labels, name) for bundle, labels in zip(bundles, selectors, strict=True)]
    found.bundle_selectors.add().resource_requests.extend(requests)
    return found


def served() -> tuple[dict[str, Any], Placing]:
    """Arguments of the served application, and what one replica asks for: bundles and the selector of each."""
    args = yaml.safe_load(spec("RayService")["serveConfigV2"])["applications"][0]["args"]
    (config,) = app.serving_args(app.parse(args))["llm_configs"]
    # The part of a kind that ray.serve.llm adds, so that a GPU of it is on the node.
    kind = {f"accelerator_type:{config['accelerator_type']}": 0.001}
    count = config["engine_kwargs"]["tensor_parallel_size"]
    (selector,) = config["deployment_config"]["placement_group_bundle_label_selector"]
    return args, ([{**config["placement_group_config"]["bundle_per_worker"], **kind}] * count, [selector] * count)


def test_each_replica_of_the_served_model_gets_a_pod_of_the_serving_group() -> None:
    args, asked = served()
    most = args["models"][0]["deployment"]["autoscaling_config"]["max_replicas"]
    replicas = [gang(f"replica{number}", *asked) for number in range(most)]
    assert brought("RayService", [], replicas) == ({"serve": most}, [])
    # The first comes with the group; each further one because it is asked for.
    assert brought("RayService", [], replicas[:2]) == ({"serve": 2}, [])
    assert len(brought("RayService", [], [*replicas, gang("another", *asked)])[1]) == 1


@pytest.mark.slow
@pytest.mark.skipif(find_spec("vllm") is None, reason="ray.serve.llm builds an application with vLLM")
def test_a_replica_asks_for_what_the_built_application_says() -> None:
    args, asked = served()
    done = subprocess.run(
        [sys.executable, "-c", _BUILT], input=json.dumps(args), capture_output=True, text=True, timeout=500,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    bundles, selectors = json.loads(done.stdout.strip().splitlines()[-1])
    assert (bundles, selectors) == asked


def test_each_worker_of_the_jobs_bench_pool_gets_a_pod_of_the_bench_group() -> None:
    config = parse_command(RunConfig, shlex.split(spec("RayJob")["entrypoint"])[7:], prog="kb_ray.generate")
    # As the run finds the cluster: its head, and no pod beside it.
    head = {"Alive": True, "Labels": cluster("RayJob")["headGroupSpec"]["labels"], "Resources": {}}
    placement = place("cuda", config.worker_counts, [head], {}, {}, where=config.bench_nodes, cpus=config.bench_cpus)
    options = placement.options("worker", 1)
    worker = request({"GPU": options["num_gpus"], "CPU": options["num_cpus"]}, options["label_selector"])
    assert brought("RayJob", [], []) == ({}, [])
    assert brought("RayJob", [worker] * placement.workers, []) == ({"bench": placement.workers}, [])


def test_a_serving_pod_that_finds_out_its_gpus_has_what_was_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager as Nvidia
    from ray._private.resource_and_label_spec import ResourceAndLabelSpec

    (group,) = cluster("RayService")["workerGroupSpecs"]
    counted = autoscaling("RayService").get_node_resources(group["groupName"])
    kind = f"accelerator_type:{group['labels']['ray.io/accelerator-type']}"
    # KubeRay writes the parameter into a shell's command as it is.
    text = group["rayStartParams"]["resources"]
    (word,) = shlex.split(f"--resources={text}")
    given = json.loads(word.removeprefix("--resources="))
    assert given == {kind: 1}
    # It reads it too, without quotes around it, before it adds --num-gpus: what is no JSON then keeps it from that.
    assert json.loads(text.strip("'\"` ")) == given
    monkeypatch.setattr(Nvidia, "get_current_node_accelerator_type", lambda: Nvidia._gpu_name_to_accelerator_type(
        "NVIDIA H100 80GB HBM3"))  # fmt: skip
    started = ResourceAndLabelSpec(
        num_cpus=counted["CPU"], num_gpus=counted["GPU"], memory=counted["memory"], object_store_memory=1 << 30,
        resources=given,
    ).resolve(is_head=False, node_ip_address="10.0.0.1").to_resource_dict()  # fmt: skip
    assert counted.items() <= started.items()
    assert [name for name in started if name.startswith("accelerator_type:")] == [kind]
