"""Files for KubeRay: known fields of the right types, the serve config they embed, and what bench pods may not have.

KubeRay's published definitions (`crds/` of its Helm chart) are checked against where KUBERAY_CRDS names their
folder; they are not kept here.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from kb_ray.config import RunConfig
from kb_ray.config_sources import parse_command
from kb_ray.env_vars import BENCH_TOKEN
from kb_ray.serve_file import FOLDER
from tests.unit.deployments.kuberay_fields import SPECS, differences, faults

FILES = {"RayService": "rayservice.yaml", "RayJob": "rayjob.yaml"}
CRDS = os.environ.get("KUBERAY_CRDS")
kinds = pytest.mark.parametrize("kind", FILES)
published = pytest.mark.skipif(CRDS is None, reason="KUBERAY_CRDS is not set: the crds folder of KubeRay's Helm chart")


def documents(kind: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / FILES[kind]).read_text()))


def with_options(kind: str) -> dict[str, Any]:
    """The first document, with `# - {name: ...}` and `# serviceAccountName: ...` as a reader would uncomment them."""
    text = re.sub(
        r"^( *)# (- \{name: .*|serviceAccountName: .*)$", r"\1\2", (FOLDER / FILES[kind]).read_text(), flags=re.M
    )
    found: dict[str, Any] = next(yaml.safe_load_all(text))
    return found


def spec(kind: str) -> dict[str, Any]:
    document = documents(kind)[0]
    assert (document["apiVersion"], document["kind"]) == ("ray.io/v1", kind)
    found: dict[str, Any] = document["spec"]
    return found


def cluster(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = spec(kind)["rayClusterConfig" if kind == "RayService" else "rayClusterSpec"]
    return found


def definition(kind: str) -> dict[str, Any]:
    path = Path(str(CRDS), f"ray.io_{kind.lower()}s.yaml")
    versions = yaml.safe_load(path.read_text())["spec"]["versions"]
    found: dict[str, Any] = next(v for v in versions if v["name"] == "v1")["schema"]["openAPIV3Schema"]
    return found


@kinds
def test_every_field_is_known_and_of_its_type(kind: str) -> None:
    assert list(faults(spec(kind), SPECS[kind])) == []
    assert list(faults({**spec(kind), "replica": 1}, SPECS[kind])) == ["spec.replica: unknown"]
    assert list(faults(with_options(kind)["spec"], SPECS[kind])) == []


@published
@kinds
def test_the_published_definition_takes_the_file(kind: str) -> None:
    import jsonschema

    schema = definition(kind)
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(documents(kind)[0])] == []
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(with_options(kind))] == []
    assert list(differences(SPECS[kind], schema["properties"]["spec"])) == []


@kinds
def test_names_are_such_as_kubernetes_takes(kind: str) -> None:
    names = [documents(kind)[0]["metadata"]["name"], *(g["groupName"] for g in cluster(kind)["workerGroupSpecs"])]
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) and len(name) < 50 for name in names)


def test_the_service_embeds_the_deployment_file_as_it_is() -> None:
    embedded = yaml.safe_load(spec("RayService")["serveConfigV2"])
    assert embedded == yaml.safe_load((FOLDER / "glm45_air.yaml").read_text())
    # KubeRay holds a worker for unready while no proxy answers on it.
    assert embedded["proxy_location"] == "EveryNode"


def test_an_old_cluster_stays_until_its_answers_are_finished() -> None:
    (model,) = yaml.safe_load(spec("RayService")["serveConfigV2"])["applications"][0]["args"]["models"]
    assert spec("RayService")["upgradeStrategy"] == {"type": "NewCluster"}
    assert spec("RayService")["rayClusterDeletionDelaySeconds"] >= model["deployment"]["graceful_shutdown_timeout_s"]


def test_a_serving_pod_has_the_gpus_of_one_replica_and_the_group_as_many_pods_as_replicas() -> None:
    (model,) = yaml.safe_load(spec("RayService")["serveConfigV2"])["applications"][0]["args"]["models"]
    (group,) = cluster("RayService")["workerGroupSpecs"]
    scaling = model["deployment"]["autoscaling_config"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    gpus = model["engine"]["tensor_parallel_size"]
    assert int(limits["nvidia.com/gpu"]) == gpus
    assert int(limits["cpu"]) >= gpus * model["cpus"]
    assert (group["minReplicas"], group["maxReplicas"]) == (scaling["min_replicas"], scaling["max_replicas"])


@kinds
def test_the_head_gets_no_work_and_the_cluster_a_token_and_labels_to_scale_by(kind: str) -> None:
    found = cluster(kind)
    assert found["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert found["rayVersion"] == "2.60.0"
    assert found["authOptions"] == {"mode": "token"}
    assert found["autoscalerOptions"]["version"] == "v2"
    for group in found["workerGroupSpecs"]:
        assert group["labels"] == {"kb-pool": group["groupName"], "ray.io/accelerator-type": "H100"}


def test_the_job_runs_a_command_that_the_program_takes() -> None:
    words = shlex.split(spec("RayJob")["entrypoint"])
    assert words[:3] == ["python", "-m", "deployments.when_served"]
    assert words[4:7] == ["python", "-m", "kb_ray.generate"]
    config = parse_command(RunConfig, words[7:], prog="kb_ray.generate")
    assert words[3] == config.vllm_url, "the model that it waits for is the one that it asks"
    # Whoever puts the entrypoint into a command line of its own need not quote it.
    assert not set(";&|<>$`\"'*?()") & set(spec("RayJob")["entrypoint"])
    (bench,) = cluster("RayJob")["workerGroupSpecs"]
    assert config.worker_counts == (bench["minReplicas"], bench["maxReplicas"])
    assert f"//{documents('RayService')[0]['metadata']['name']}-serve-svc:8000/" in str(config.vllm_url)
    assert spec("RayJob")["submissionMode"] == "SidecarMode"
    assert yaml.safe_load(spec("RayJob")["runtimeEnvYAML"])["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"] == "60"


def test_bench_pods_have_no_account_no_rights_and_no_way_to_the_metadata_service() -> None:
    (bench,) = cluster("RayJob")["workerGroupSpecs"]
    pod, (container,) = bench["template"]["spec"], bench["template"]["spec"]["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert "env" not in container
    policy = next(d for d in documents("RayJob") if d["kind"] == "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= bench["template"]["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Egress"]
    ((block, pods),) = [rule["to"] for rule in policy["egress"]]
    assert {"169.254.169.254/32", "169.254.169.252/32"} <= set(block["ipBlock"]["except"])
    assert pods == {"namespaceSelector": {}}, "to plugins for which a block holds no pods"


def test_the_documented_selector_of_the_jobs_log_names_the_heads_pod_and_no_other() -> None:
    page = (FOLDER.parent / "docs" / "cluster.md").read_text()
    ((key, value),) = re.findall(r"kubectl logs .* -l ([\w./-]+)=([\w-]+)", page)
    # Before there is a pod, and while its image comes, there is no log: `kubectl logs` would end at once.
    waited = re.search(r"kubectl wait pod -l ([\w./-]+)=([\w-]+) --for=condition=Ready .*\nkubectl logs -f", page)
    assert waited is not None
    assert waited.groups() == (key, value)
    found = cluster("RayJob")
    assert found["headGroupSpec"]["template"]["metadata"]["labels"][key] == value
    assert all(key not in group["template"]["metadata"]["labels"] for group in found["workerGroupSpecs"])
    # KubeRay's own keys are of the cluster, not of its pods, or change from one try to the next.
    assert not key.startswith("ray.io/")


@kinds
def test_a_head_on_a_node_with_gpus_takes_none(kind: str) -> None:
    (head,) = cluster(kind)["headGroupSpec"]["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in head["resources"]["limits"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in head["env"]
    for group in cluster(kind)["workerGroupSpecs"]:
        (worker,) = group["template"]["spec"]["containers"]
        assert all(variable["name"] != "NVIDIA_VISIBLE_DEVICES" for variable in worker.get("env", [])), (
            "theirs is set by who gives out GPUs"
        )


def test_secrets_have_a_place_where_they_are_used_and_nowhere_else() -> None:
    found = with_options("RayService")["spec"]["rayClusterConfig"]
    (head,) = found["headGroupSpec"]["template"]["spec"]["containers"]
    (serve,) = (group["template"]["spec"]["containers"][0] for group in found["workerGroupSpecs"])
    secret = {
        container["name"]: {
            v["name"]: v["valueFrom"]["secretKeyRef"]["key"] for v in container["env"] if "valueFrom" in v
        }
        for container in (head, serve)
    }
    assert secret == {"ray-head": {BENCH_TOKEN: "kb_bench_token"}, "ray-worker": {"HF_TOKEN": "hf_token"}}
    # The page that tells of it has the same line, and a key of that name in the secret.
    page = (FOLDER.parent / "docs" / "reward_functions.md").read_text()
    (block,) = (yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    assert [variable for variable in head["env"] if variable["name"] == BENCH_TOKEN] == block
    assert "--from-file=kb_bench_token=" in page


def test_nothing_is_set_that_kuberay_no_longer_reads() -> None:
    deprecated = {"serviceUnhealthySecondThreshold", "deploymentUnhealthySecondThreshold"}
    assert deprecated.isdisjoint(spec("RayService"))
