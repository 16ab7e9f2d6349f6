"""Arguments of a Serve application as its YAML file gives them, checked. Knows no application."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

from kb_ray.env_vars import SECRETS
from kb_ray.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)


def _no_secret(names: dict[str, str]) -> dict[str, str]:
    """Ray writes a process's environment into its logs when it is given one."""
    secret = next((name for name in names if name in SECRETS or name.endswith(_SECRET_ENDS)), None)
    if secret is not None:
        raise ValueError(
            f"{secret} would stand in Ray's logs as it is: set it where `ray start` runs, or name a file that holds it"
        )
    return names


_SECRET_ENDS = ("_TOKEN", "_SECRET", "_PASSWORD", "_API_KEY", "_ACCESS_KEY")
Variables = Annotated[dict[str, str], AfterValidator(_no_secret)]
"""Environment variables that are no secrets."""


def check_scaling(scaling: Any) -> None:
    """ValueError for what Ray's own autoscaling_config does not know or cannot use; Serve passes over the first."""
    from ray.serve.config import AutoscalingConfig

    if not isinstance(scaling, dict):
        raise ValueError(f"autoscaling_config is {scaling!r}: it is a mapping, of min_replicas and others")
    known = sorted(AutoscalingConfig.model_fields)
    for name in scaling:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            raise ValueError(f"autoscaling_config.{name} is none of Ray's; {meant}")
    try:
        AutoscalingConfig.model_validate(scaling)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"autoscaling_config.{where}: {first['msg']}") from error


def checked(model: type[Model], args: dict[str, Any]) -> Model:
    """`args` as `model`. ConfigError names the first wrong one."""
    try:
        return model.model_validate(args)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "args"
        raise ConfigError(f"deployment argument {where}: {first['msg']}") from error
