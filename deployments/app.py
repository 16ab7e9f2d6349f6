"""Serve application with one OpenAI-compatible endpoint for the models named in a YAML beside this file.

`import_path: deployments.app:build`. It only translates: a short typed description of each model becomes the
configuration of ray.serve.llm, which serves it with vLLM. Knows nothing of prompts, tasks or runs; a run
reaches the model over HTTP like any other client. vLLM is imported when an application is built, not before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from deployments.adapters import with_adapter
from deployments.arguments import Options, Variables, argument_faults, checked
from kb_ray import local_checkpoints, serve_engine, serve_weights
from kb_ray.errors import ConfigError
from kb_ray.serve_fields import accelerator_faults, deployment_faults, lora_faults, secret_variables

if TYPE_CHECKING:
    from ray.serve import Application

ROOT = Path(__file__).resolve().parent.parent
NODES = {"kb-pool": "!in(bench, train)"}
"""Label selector of whatever serves: any node, but those kept for evaluation or training."""
ANSWER_LIMIT_S = 86_400.0
"""What the front waits for one answer: the most that a run can, by --answer-timeout. Who waits no longer hangs up, and
the model then drops the answer."""
_FRONT = "deployments.front:Front"
_READ_FORMATS = ("auto", "hf", "safetensors", "fastsafetensors")
"""Of vLLM's ways to load weights those that read a folder's files; `dummy` reads none."""


class ModelArgs(BaseModel):
    """One served model."""

    # pydantic keeps the prefix `model_` for itself unless told otherwise
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_id: str
    """Name that requests use."""
    source: str
    """A folder (`/...`, or `./...` from the repository's root), a Hugging Face repository, or s3://..."""
    source_env: str | None = None
    """Environment variable that overrides `source` where it is set."""
    adapter: str | None = None
    """A training run's output or one of its checkpoints, a folder or s3://..., that answers in place of `source`, on
    which it was trained; of a run the latest checkpoint, at the moment of the start. None: `source` as it is."""
    missing: str = "download it, or name another source"
    """What to do where the folder does not exist; told to the user."""
    device: Literal["cpu", "gpu"] = "gpu"
    accelerator: str | None = None
    """Ray's name of the GPU that must serve it, e.g. H100; None: any."""
    replicas: int = Field(1, ge=1)
    """Where `deployment` has no autoscaling_config."""
    cpus: float = Field(1.0, ge=0)
    """CPUs reserved for each vLLM worker."""
    nodes: dict[str, str] = NODES
    """Ray's label selector of the nodes that may serve it; {}: any."""
    engine: Options = {}
    """Engine arguments of vLLM, by their own names (max_model_len, dtype, tensor_parallel_size, ...)."""
    lora: Options | None = None
    """`lora_config` of ray.serve.llm, for adapters by their names; None: no such names."""
    env: Variables = {}
    """Environment variables of the processes that serve it, over those of the application's own runtime_env."""
    deployment: Options = {}
    """Further options of the Serve deployment (autoscaling_config, graceful_shutdown_timeout_s, ...)."""

    @model_validator(mode="after")
    def _cpu_has_no_accelerator(self) -> ModelArgs:
        if self.device == "cpu" and self.accelerator is not None:
            raise ValueError("accelerator is for device: gpu")
        return self

    @model_validator(mode="after")
    def _one_adapter_or_many(self) -> ModelArgs:
        if self.adapter is not None and self.lora is not None:
            raise ValueError("adapter and lora exclude each other: one in place of the model, or many beside it")
        return self

    @field_validator("engine")
    @classmethod
    def _counts_are_counts(cls, engine: dict[str, Any]) -> dict[str, Any]:
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            value = engine.get(name, 1)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}: it is a count of GPUs")
        return engine


class AppArgs(BaseModel):
    """`args` of the application."""

    model_config = ConfigDict(extra="forbid")

    models: list[ModelArgs] = Field(min_length=1)
    ingress_replicas: int = Field(1, ge=1)
    """Replicas of the HTTP front. One carries a hundred requests at once; vLLM is the bottleneck."""


def build(args: dict[str, Any]) -> Application:
    """The application described by `args` (see AppArgs). ConfigError says which argument is unusable."""
    from ray.serve.llm import build_openai_app

    return build_openai_app(serving_args(parse(args)))


def parse(args: dict[str, Any]) -> AppArgs:
    """`args` checked. ConfigError names the first wrong one."""
    return checked(AppArgs, args, faults(args))


def faults(args: Any) -> Iterator[str]:
    """One line for each argument that this application, Serve or Ray does not know or cannot use. Imports Ray."""
    yield from argument_faults(AppArgs, args)
    for where, model in _models(args):
        # Another kind of value is told above.
        if isinstance(model.get("accelerator"), str):
            yield from accelerator_faults(model["accelerator"], f"{where}.accelerator")
        if isinstance(model.get("deployment"), Mapping):
            yield from deployment_faults(model["deployment"], f"{where}.deployment")
        if isinstance(model.get("lora"), Mapping):
            yield from lora_faults(model["lora"], f"{where}.lora")


def engine_faults(args: Any) -> Iterator[str]:
    """One line for each name under a model's `engine` that the vLLM here does not know; serve_engine.NotAsked where it
    cannot be asked."""
    for where, model in _models(args):
        if isinstance(model.get("engine"), Mapping):
            yield from serve_engine.faults(model["engine"], f"{where}.engine")


def _models(args: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The place of each model in `args`, and its arguments, as far as they are such."""
    models = args.get("models") if isinstance(args, Mapping) else None
    for number, model in enumerate(models if isinstance(models, list) else ()):
        if isinstance(model, Mapping):
            yield f"models.{number}", model


def weights_faults(args: dict[str, Any]) -> Iterator[ConfigError]:
    """What of the models' folders is not on this machine (NotHere), or is and cannot be read."""
    for model in parse(args).models:
        try:
            folder = Path(_source(model)) if _folder(model) else None
        except serve_weights.NotHere as absent:
            yield absent
        else:
            way = model.engine.get("load_format", "auto")
            read = {"weights": way in _READ_FORMATS, "consolidated": way == "auto"}
            for fault in serve_weights.faults(folder, **read) if folder else ():
                yield ConfigError(f"model {model.model_id}: {fault}")


def settled(args: dict[str, Any]) -> dict[str, Any]:
    """`args` with each `source` as this process's environment has it, and of each run the checkpoint that is its latest
    now, for a build in another process and later. ConfigError where there is no such checkpoint."""
    models = zip(args["models"], parse(args).models, strict=True)
    return {**args, "models": [{**given, **_named(model)} for given, model in models]}


def serving_args(args: AppArgs) -> dict[str, Any]:
    """The argument of `ray.serve.llm.build_openai_app`, as plain data."""
    return {
        "llm_configs": [_llm_config(model) for model in args.models],
        "ingress_cls_config": {"ingress_cls": _FRONT, "ingress_extra_kwargs": {"answer_limit_s": ANSWER_LIMIT_S}},
        "ingress_deployment_config": {
            # By this name deployment files give options of it.
            "name": "OpenAiIngress",
            "num_replicas": args.ingress_replicas,
            "graceful_shutdown_timeout_s": _leaving_s(args.models),
            # The front only forwards: it must find a place beside vLLM on a machine of two cores.
            "ray_actor_options": {"num_cpus": 0, "label_selector": NODES},
        },
    }


def _leaving_s(models: list[ModelArgs]) -> float:
    """Seconds that the slowest of the models has to finish its answers: they pass through the front, which leaves too
    where a file has changed."""
    from ray.serve._private.constants import DEFAULT_GRACEFUL_SHUTDOWN_TIMEOUT_S as ray_default

    return max(float(model.deployment.get("graceful_shutdown_timeout_s", ray_default)) for model in models)


def _llm_config(model: ModelArgs) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": model.model_id, "model_source": _source(model)},
        "engine_kwargs": model.engine,
        "accelerator_type": model.accelerator,
        "accelerator_config": {"kind": model.device},
        # Tensor-parallel workers speak over NVLink: all on one node, or not at all.
        "placement_group_config": {"bundle_per_worker": _bundle(model), "strategy": "STRICT_PACK"},
        "runtime_env": {"env_vars": {**_application_env(), **model.env}},
        "deployment_config": {
            **({} if "autoscaling_config" in model.deployment else {"num_replicas": model.replicas}),
            "ray_actor_options": {"num_cpus": 0},
            # One selector stands for all bundles. A neighbour that serves would spoil the timings of a bench node.
            **({"placement_group_bundle_label_selector": [model.nodes]} if model.nodes else {}),
            **model.deployment,
        },
    }
    if model.lora is not None:
        config["lora_config"] = model.lora
    return config if model.adapter is None else with_adapter(config, _adapter(model.adapter))


def _application_env() -> dict[str, str]:
    """Variables of the application's runtime_env, in which Serve runs `build`: a model's own would replace them all."""
    import ray

    found = ray.get_runtime_context().runtime_env.get("env_vars") if ray.is_initialized() else None
    for fault in secret_variables(found, "runtime_env.env_vars"):
        raise ConfigError(f"application's {fault}")
    return dict(found or {})


def _bundle(model: ModelArgs) -> dict[str, float]:
    gpu = {"GPU": 1.0} if model.device == "gpu" else {}
    return {"CPU": model.cpus, **gpu}


def _named(model: ModelArgs) -> dict[str, Any]:
    """What of a model depends on where and when it is asked for."""
    adapter = {} if model.adapter is None else {"adapter": _adapter(model.adapter)}
    return {"source": _named_source(model), "source_env": None, **adapter}


def _adapter(name: str) -> str:
    """Where exactly it lies."""
    return local_checkpoints.place(name if "://" in name else str(ROOT / os.path.expanduser(name)))


def _named_source(model: ModelArgs) -> str:
    return (os.environ.get(model.source_env) if model.source_env else None) or model.source


def _source(model: ModelArgs) -> str:
    folder = _folder(model)
    if folder is None:
        return _named_source(model)
    if not (folder / serve_weights.CONFIG).is_file():
        # vLLM would take a missing folder for the name of a repository and look for it on the network.
        raise serve_weights.NotHere(f"no model of {model.model_id} in {folder}: {model.missing}")
    return str(folder)


def _folder(model: ModelArgs) -> Path | None:
    """The folder that it is served from; None where it comes from elsewhere."""
    source = _named_source(model)
    return (ROOT / os.path.expanduser(source)).resolve() if source.startswith(("/", "./", "../", "~")) else None
