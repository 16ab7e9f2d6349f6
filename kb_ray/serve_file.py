"""Deployment files: found by name, read, and checked before anything starts.

A deployment file is a config file of Ray Serve. Serve itself ignores a field that it does not know; here it is an
error, so that a slip of the pen is found in a second and not after the weights are loaded. Does not know what the
applications in a file are: one whose module has a function `faults` says with it what is wrong with its arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kb_ray.errors import ConfigError
from kb_ray.serve_address import PORTS
from kb_ray.serve_fields import invalid, nested_faults, secrets_within, unknown
from kb_ray.setting_names import near

FOLDER = Path(__file__).resolve().parent.parent / "deployments"


def find(name: str) -> Path:
    """The file that `name` means: a path, or a name in the folder of deployments."""
    for path in (Path(name), FOLDER / f"{name}.yaml"):
        if path.is_file():
            return path
    known = names()
    close = near(name, known)
    meant = f"did you mean {close}? Known: " if close else "pass a YAML file, a checkpoint, or one of: "
    raise ConfigError(f"no deployment {name}: {meant}{', '.join(known) or 'none'}")


def names() -> list[str]:
    """Deployments that can be served by name."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if "\napplications:" in path.read_text(encoding="utf-8"))


def read(path: Path) -> dict[str, Any]:
    """A Serve config file. ConfigError where it is no such thing."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict) or not isinstance(config.get("applications"), list):
        raise ConfigError(f"{path} is no Serve config: it has no list of applications")
    return config


def check(config: Mapping[str, Any]) -> None:
    """ConfigError for the first thing in a Serve config that Serve or one of its applications cannot use.

    Imports Ray: set its environment before (`cluster.prepare_environment`).
    """
    for fault in faults(config):
        raise ConfigError(fault)


def faults(config: Mapping[str, Any]) -> Iterator[str]:
    """One line for each thing that Serve or an application cannot use. Imports Ray."""
    for fault in _serve_faults(config):
        yield f"deployment file: {fault}"
    for application in filter(_can_be_looked_at, config["applications"]):
        try:
            look = getattr(module_of(application), "faults", None)
            for fault in look(application.get("args") or {}) if look is not None else ():
                yield f"deployment argument {fault}"
        except ConfigError as error:
            yield str(error)


def engine_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """One line for each name under an `engine` that the vLLM here does not know; serve_engine.NotAsked where it cannot
    be asked. For any file: what is wrong with it otherwise, `faults` tells."""
    for application in filter(_can_be_looked_at, config["applications"]):
        try:
            look = getattr(module_of(application), "engine_faults", None)
        except ConfigError:
            continue
        for fault in look(application.get("args") or {}) if look is not None else ():
            yield f"deployment argument {fault}"


def _can_be_looked_at(application: Any) -> bool:
    """Whether it names what it is and has arguments; else that has been told already."""
    return (
        isinstance(application, Mapping)
        and isinstance(application.get("import_path"), str)
        and isinstance(application.get("args"), Mapping | None)
    )


def weights_faults(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """What of the folders that the applications read is not on this machine (NotHere), or cannot be read. For a file
    that `check` passes."""
    for application in config["applications"]:
        look = getattr(module_of(application), "weights_faults", None)
        if look is not None:
            yield from look(application.get("args") or {})


def _serve_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the fields that are Serve's own."""
    from pydantic import ValidationError
    from ray.serve.schema import ServeDeploySchema

    if not config["applications"]:
        yield "applications is empty: there is nothing to serve"
    yield from _unknown(config)
    try:
        port = ServeDeploySchema.model_validate(dict(config)).http_options.port
    except ValidationError as error:
        yield from invalid(error)
    else:
        if port not in PORTS:
            yield f"http_options.port: {port} is no port, they go from {PORTS[0]} to {PORTS[-1]}"
    # The arguments of an application are its own to look through.
    own = [{**app, "args": None} if isinstance(app, Mapping) else app for app in config["applications"]]
    yield from secrets_within({**config, "applications": own})


def module_of(application: Mapping[str, Any]) -> Any:
    """The module that an application's import_path names. ConfigError where there is none, or not that name in it."""
    path = str(application.get("import_path", ""))
    module, _, attribute = path.partition(":")
    try:
        found = importlib.import_module(module)
        getattr(found, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"application {application.get('name')}: import_path {path!r} fails: {error}") from error
    return found


def _unknown(config: Mapping[str, Any]) -> Iterator[str]:
    """Each field that Serve would pass over in silence, and what it cannot use of an autoscaling_config."""
    from ray.serve import schema

    yield from unknown(config, schema.ServeDeploySchema, "")
    yield from unknown(config.get("http_options"), schema.HTTPOptionsSchema, "http_options.")
    yield from unknown(config.get("grpc_options"), schema.gRPCOptionsSchema, "grpc_options.")
    for number, application in enumerate(config["applications"]):
        where = f"applications.{number}."
        yield from unknown(application, schema.ServeApplicationSchema, where)
        deployments = application.get("deployments") if isinstance(application, Mapping) else None
        for place, deployment in enumerate(deployments if isinstance(deployments, list) else ()):
            yield from _unknown_of_deployment(deployment, f"{where}deployments.{place}.")


def _unknown_of_deployment(deployment: Any, where: str) -> Iterator[str]:
    from ray.serve.schema import DeploymentSchema

    yield from unknown(deployment, DeploymentSchema, where)
    if isinstance(deployment, Mapping):
        yield from nested_faults(deployment, where)
