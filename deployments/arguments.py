"""Arguments of a Serve application as its YAML file gives them, checked. Knows no application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

from kb_ray.errors import ConfigError
from kb_ray.serve_fields import invalid, scaling_faults, secret_variables, secrets_within

Model = TypeVar("Model", bound=BaseModel)


def _no_secret_variable(variables: dict[str, str]) -> dict[str, str]:
    _refuse(secret_variables(variables))
    return variables


def _no_secret(options: dict[str, Any]) -> dict[str, Any]:
    _refuse(secrets_within(options))
    return options


def _refuse(faults: Iterator[str]) -> None:
    """ValueError with the first of `faults`."""
    if (fault := next(faults, None)) is not None:
        raise ValueError(fault)


Variables = Annotated[dict[str, str], AfterValidator(_no_secret_variable)]
"""Environment variables that are no secrets."""
Options = Annotated[dict[str, Any], AfterValidator(_no_secret)]
"""Options of vLLM's or Serve's without secrets."""


def check_scaling(scaling: Any) -> None:
    """ValueError for what Ray's own autoscaling_config does not know or cannot use; Serve passes over the first."""
    _refuse(scaling_faults(scaling, "autoscaling_config"))


def checked(model: type[Model], args: dict[str, Any]) -> Model:
    """`args` as `model`. ConfigError names the first wrong one."""
    try:
        return model.model_validate(args)
    except ValidationError as error:
        raise ConfigError(f"deployment argument {next(invalid(error, whole='args'))}") from error
