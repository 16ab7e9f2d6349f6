"""What stands in a Serve config: fields that Serve knows, values that it can use, environments without secrets.

Yields one line for each fault. Knows neither whole files nor the arguments of an application.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from kb_ray.env_vars import SECRETS
from kb_ray.setting_names import near

_SECRET = re.compile(r"(^|_)(API_?KEY|KEY|PASSPHRASE|PASSWD|PASSWORD|SECRET|TOKEN)$")
_LOGIN_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")
_SECRET_OPTIONS = frozenset({name.lower() for name in SECRETS} | {"api_key"})


def unknown(part: Any, schema: type[BaseModel], where: str) -> Iterator[str]:
    """Fields of `part` that `schema` does not have and Serve would pass over in silence. `where` ends in a dot."""
    yield from _unknown_names(part, schema.model_fields, where)


def _unknown_names(part: Any, known: Iterable[str], where: str) -> Iterator[str]:
    known = sorted(known)
    for name in part if isinstance(part, Mapping) else ():
        if name not in known:
            yield f"{where}{name} is no field of a Serve config; {nearest(name, known)}"


def nearest(name: object, known: Iterable[str]) -> str:
    """What was meant by a name that is not `known`, else all that are."""
    known = sorted(known)
    meant = near(str(name), known)
    return f"did you mean {meant}?" if meant else f"known: {', '.join(known)}"


def accelerator_faults(kind: str, where: str) -> Iterator[str]:
    """Says that `kind` is no name of Ray's for a GPU. Imports Ray."""
    from ray.util.accelerators import accelerators

    known = [value for name, value in vars(accelerators).items() if name[0].isupper()]
    if kind not in known:
        yield f"{where}: Ray knows no {kind!r}; {nearest(kind, known)}"


def deployment_faults(options: Mapping[str, Any], where: str) -> Iterator[str]:
    """What of the options of a deployment Serve does not know or cannot use. Imports Ray."""
    from ray.serve._private.config import DeploymentConfig
    from ray.serve.schema import DeploymentSchema

    # An option of `serve.deployment` that a file has no field for.
    further = "max_constructor_retry_count"
    yield from _unknown_names(options, DeploymentSchema.model_fields.keys() | {further}, f"{where}.")
    yield from nested_faults(options, f"{where}.")
    fields = {name: value for name, value in options.items() if name in DeploymentSchema.model_fields}
    if not isinstance(fields.get("autoscaling_config"), Mapping):
        fields.pop("autoscaling_config", None)
    if "placement_group_bundles" not in fields:
        # Those of a model come from its placement_group_config.
        fields.pop("placement_group_bundle_label_selector", None)
    if isinstance(fields.get("request_router_config"), Mapping):
        # The schema would import the router, and with that of ray.serve.llm all of vLLM.
        del fields["request_router_config"]
    yield from _refused(DeploymentSchema, {**fields, "name": "any"}, where)
    if further in options:
        yield from _refused(DeploymentConfig, {further: options[further]}, where)


def lora_faults(options: Mapping[str, Any], where: str) -> Iterator[str]:
    """The same of a `lora_config` of ray.serve.llm. Imports Ray's part for language models, not vLLM."""
    from ray.llm._internal.serve.core.configs.llm_config import LoraConfig

    yield from unknown(options, LoraConfig, f"{where}.")
    known = {name: value for name, value in options.items() if name in LoraConfig.model_fields}
    yield from _refused(LoraConfig, known, where)


def _refused(schema: type[BaseModel], part: Mapping[str, Any], where: str) -> Iterator[str]:
    try:
        schema.model_validate(part)
    except ValidationError as error:
        yield from invalid(error, where, schema=schema)


def nested_faults(options: Mapping[str, Any], where: str) -> Iterator[str]:
    """The same of the parts of a deployment's options. `where` ends in a dot."""
    from ray.serve.config import RequestRouterConfig
    from ray.serve.schema import RayActorOptionsSchema

    yield from unknown(options.get("ray_actor_options"), RayActorOptionsSchema, f"{where}ray_actor_options.")
    yield from unknown(options.get("request_router_config"), RequestRouterConfig, f"{where}request_router_config.")
    if options.get("autoscaling_config") is not None:
        yield from scaling_faults(options["autoscaling_config"], f"{where}autoscaling_config")


def scaling_faults(scaling: Any, where: str) -> Iterator[str]:
    """What Ray does not know or cannot use in an autoscaling_config. Imports Ray."""
    from ray.serve.config import AutoscalingConfig

    if not isinstance(scaling, Mapping):
        yield f"{where} is {scaling!r}: it is a mapping, of min_replicas and others"
        return
    yield from unknown(scaling, AutoscalingConfig, f"{where}.")
    yield from _refused(AutoscalingConfig, scaling, where)


def invalid(
    error: ValidationError, where: str = "", whole: str = "file", schema: type[BaseModel] | None = None
) -> Iterator[str]:
    """One line for each error of pydantic's: the place below `where`, or `whole`, and what is wrong with it.

    `schema`: what was not matched, for the names that it knows. A name that is none comes first: it may be meant for
    one that is missing.
    """
    for found in sorted(error.errors(), key=lambda found: found["type"] != "extra_forbidden"):
        # A fault between two fields has no place of its own.
        place = _below(where, *map(str, found["loc"])) or whole
        text = " ".join(found["msg"].removeprefix("Value error, ").split())
        if schema is not None and found["type"] == "extra_forbidden":
            text = f"no such field; {nearest(found['loc'][-1], _known_at(schema, found['loc'][:-1]))}"
        yield f"{place}: {text}"


def _known_at(schema: type[BaseModel], place: tuple[int | str, ...]) -> Iterable[str]:
    """Fields of the part of a `schema` that `place` leads to."""
    for step in place:
        # Numbers are of lists, and a union has names of its own for its kinds.
        if isinstance(step, str) and step in schema.model_fields:
            schema = _schema_in(schema.model_fields[step].annotation) or schema
    return schema.model_fields


def _schema_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_schema_in, get_args(annotation))), None)


def secret_variables(variables: Any, where: str = "") -> Iterator[str]:
    """Environment variables that are secrets: Ray writes an environment that it gives to a process into its logs."""
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        upper = str(name).upper()
        if upper in SECRETS or _SECRET.search(upper) or _LOGIN_IN_URL.search(str(value)):
            yield (
                f"{_below(where, str(name))} would stand in Ray's logs as it is: set it where `ray start` runs, or "
                "name a file that holds it"
            )


def secrets_within(part: Any, where: str = "") -> Iterator[str]:
    """Secrets anywhere in `part`: in an `env_vars`, or as an option that is named like one, such as hf_token."""
    if isinstance(part, list):
        for number, item in enumerate(part):
            yield from secrets_within(item, _below(where, str(number)))
    for name, value in part.items() if isinstance(part, Mapping) else ():
        if name == "env_vars":
            yield from secret_variables(value, _below(where, "env_vars"))
        elif isinstance(value, str) and value and str(name).lower() in _SECRET_OPTIONS:
            yield from secret_variables({name: value}, where)
        else:
            yield from secrets_within(value, _below(where, str(name)))


def _below(*places: str) -> str:
    return ".".join(place for place in places if place)
