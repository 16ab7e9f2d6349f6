"""Arguments of a Serve application as its YAML file gives them, checked. Knows no application."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kb_ray.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], args: dict[str, Any]) -> Model:
    """`args` as `model`. ConfigError names the first wrong one."""
    try:
        return model.model_validate(args)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "args"
        raise ConfigError(f"deployment argument {where}: {first['msg']}") from error
