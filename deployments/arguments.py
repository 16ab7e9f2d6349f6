"""Arguments of a Serve application as its YAML file gives them, checked. Knows no application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

from kb_ray.errors import ConfigError
from kb_ray.serve_fields import invalid, secret_variables, secrets_within

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


def argument_faults(model: type[BaseModel], args: Any) -> Iterator[str]:
    """One line for each of `args` that `model` does not know or cannot use."""
    try:
        model.model_validate(args)
    except ValidationError as error:
        yield from invalid(error, whole="args", schema=model)


def checked(model: type[Model], args: Any, faults: Iterator[str]) -> Model:
    """`args` as `model`. ConfigError for the first of `faults`."""
    for fault in faults:
        raise ConfigError(f"deployment argument {fault}")
    return model.model_validate(args)
