"""Deployment files: found by name, read, and checked before anything starts.

A deployment file is a config file of Ray Serve. Serve itself ignores a field that it does not know; here it is an
error, so that a slip of the pen is found in a second and not after the weights are loaded. Does not know what the
applications in a file are: one whose module has a function `parse` checks its own arguments with it.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kb_ray.errors import ConfigError

FOLDER = Path(__file__).resolve().parent.parent / "deployments"


def find(name: str) -> Path:
    """The file that `name` means: a path, or a name in the folder of deployments."""
    for path in (Path(name), FOLDER / f"{name}.yaml"):
        if path.is_file():
            return path
    known = names()
    close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.4)
    meant = f"did you mean {close[0]}? Known: " if close else "pass a YAML file, or one of: "
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
    from pydantic import ValidationError
    from ray.serve.schema import ServeDeploySchema

    for where, name, known in _unknown(config):
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(known))}"
        raise ConfigError(f"deployment file: {where}{name} is no field of a Serve config; {hint}")
    try:
        ServeDeploySchema.model_validate(dict(config))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"deployment file: {_dotted(first['loc'])}: {first['msg']}") from error
    for application in config["applications"]:
        parse = getattr(module_of(application), "parse", None)
        if parse is not None:
            parse(application.get("args") or {})


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


def _unknown(config: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """(where, name, known names) of each field that Serve would pass over in silence."""
    from ray.serve.config import AutoscalingConfig
    from ray.serve.schema import DeploymentSchema, HTTPOptionsSchema, ServeApplicationSchema, ServeDeploySchema

    parts: list[tuple[str, Any, Any]] = [("", config, ServeDeploySchema)]
    parts.append(("http_options.", config.get("http_options"), HTTPOptionsSchema))
    for number, application in enumerate(config["applications"]):
        where = f"applications.{number}."
        parts.append((where, application, ServeApplicationSchema))
        deployments = application.get("deployments") if isinstance(application, Mapping) else None
        for place, deployment in enumerate(deployments or ()):
            own = f"{where}deployments.{place}."
            parts.append((own, deployment, DeploymentSchema))
            scaling = deployment.get("autoscaling_config") if isinstance(deployment, Mapping) else None
            parts.append((f"{own}autoscaling_config.", scaling, AutoscalingConfig))
    for where, part, schema in parts:
        if not isinstance(part, Mapping):
            continue
        yield from ((where, str(name), list(schema.model_fields)) for name in part if name not in schema.model_fields)


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "file"
