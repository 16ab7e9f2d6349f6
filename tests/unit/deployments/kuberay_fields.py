"""The fields of KubeRay's RayService and RayJob (ray.io/v1) that our files use, and their types. Our own list.

Far from the whole: a field that is not here fails the tests until it is added, after a look at KubeRay's published
definition, which a test compares with this list where it is given one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Fields = dict[str, Any]
"""Field -> type: a JSON type's name, a tuple of allowed words, nested Fields, a list of one of these, or a map."""

NAMES: Fields = {"*": "string"}
QUANTITIES: Fields = {"*": "quantity"}
PORT: Fields = {"name": "string", "containerPort": "integer"}
MOUNT: Fields = {"name": "string", "mountPath": "string"}
VOLUME: Fields = {"name": "string", "emptyDir": {"medium": "string", "sizeLimit": "quantity"}}
TOLERATION: Fields = {"key": "string", "operator": "string", "value": "string", "effect": "string"}
VARIABLE: Fields = {
    "name": "string",
    "value": "string",
    "valueFrom": {"secretKeyRef": {"name": "string", "key": "string"}},
}
CONTAINER: Fields = {
    "name": "string",
    "image": "string",
    "ports": [PORT],
    "env": [VARIABLE],
    "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    "securityContext": {"allowPrivilegeEscalation": "boolean", "capabilities": {"drop": ["string"]}},
    "volumeMounts": [MOUNT],
}
POD: Fields = {
    "restartPolicy": "string",
    "automountServiceAccountToken": "boolean",
    "serviceAccountName": "string",
    "enableServiceLinks": "boolean",
    "securityContext": {
        "runAsNonRoot": "boolean",
        "runAsUser": "integer",
        "runAsGroup": "integer",
        "fsGroup": "integer",
        "seccompProfile": {"type": "string"},
    },
    "tolerations": [TOLERATION],
    "containers": [CONTAINER],
    "volumes": [VOLUME],
}
TEMPLATE: Fields = {"metadata": {"labels": NAMES}, "spec": POD}
GROUP: Fields = {"rayStartParams": NAMES, "labels": NAMES, "template": TEMPLATE}
CLUSTER: Fields = {
    "rayVersion": "string",
    "enableInTreeAutoscaling": "boolean",
    "autoscalerOptions": {"version": ("v1", "v2"), "idleTimeoutSeconds": "integer"},
    "authOptions": {"mode": ("disabled", "token")},
    "headGroupSpec": GROUP,
    "workerGroupSpecs": [
        {
            **GROUP,
            "groupName": "string",
            "replicas": "integer",
            "minReplicas": "integer",
            "maxReplicas": "integer",
            "idleTimeoutSeconds": "integer",
        }
    ],
}
SERVICE: Fields = {
    "upgradeStrategy": {"type": "string"},
    "rayClusterDeletionDelaySeconds": "integer",
    "serveConfigV2": "string",
    "rayClusterConfig": CLUSTER,
}
JOB: Fields = {
    "submissionMode": "string",
    "entrypoint": "string",
    "runtimeEnvYAML": "string",
    "shutdownAfterJobFinishes": "boolean",
    "ttlSecondsAfterFinished": "integer",
    "backoffLimit": "integer",
    "rayClusterSpec": CLUSTER,
}
SPECS = {"RayService": SERVICE, "RayJob": JOB}
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "boolean": (bool,), "quantity": (str,), "object": (dict,), "array": (list,),
}  # fmt: skip


def faults(value: Any, fields: Any, where: str = "spec") -> Iterator[str]:
    """What of a document's part is unknown to `fields`, or of another type."""
    if isinstance(fields, list):
        if not isinstance(value, list):
            yield f"{where}: not a list"
            return
        for number, item in enumerate(value):
            yield from faults(item, fields[0], f"{where}[{number}]")
    elif isinstance(fields, Mapping):
        if not isinstance(value, Mapping):
            yield f"{where}: not a map"
            return
        for name, item in value.items():
            known = fields.get(name, fields.get("*"))
            if known is None:
                yield f"{where}.{name}: unknown"
            else:
                yield from faults(item, known, f"{where}.{name}")
    elif isinstance(fields, tuple):
        if value not in fields:
            yield f"{where}: {value} is none of {fields}"
    elif not isinstance(value, TYPES[fields]) or (fields != "boolean" and isinstance(value, bool)):
        yield f"{where}: {value!r} is no {fields}"


def differences(fields: Any, schema: Mapping[str, Any], where: str = "spec") -> Iterator[str]:
    """Where `fields` and a published OpenAPI schema disagree."""
    if isinstance(fields, list):
        if schema.get("type") != "array":
            yield f"{where}: not a list there"
        else:
            yield from differences(fields[0], schema["items"], f"{where}[]")
    elif isinstance(fields, Mapping):
        properties = schema.get("properties", {})
        for name, known in fields.items():
            found = schema.get("additionalProperties") if name == "*" else properties.get(name)
            # An object that keeps unknown fields describes none of them.
            if not isinstance(found, Mapping):
                if not schema.get("x-kubernetes-preserve-unknown-fields") and schema != {"type": "object"}:
                    yield f"{where}.{name}: unknown there"
            else:
                yield from differences(known, found, f"{where}.{name}")
    elif isinstance(fields, tuple):
        if set(schema.get("enum", fields)) != set(fields):
            yield f"{where}: {schema['enum']} there"
    elif fields == "quantity":
        if not schema.get("x-kubernetes-int-or-string"):
            yield f"{where}: no quantity there"
    elif schema.get("type") != fields:
        yield f"{where}: {schema.get('type')} there"
