"""What stands in a Serve config: fields that Serve knows, an autoscaling that it can use, environments without secrets.

Yields one line for each fault. Knows neither whole files nor the arguments of an application.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from kb_ray.env_vars import SECRETS

_SECRET = re.compile(r"(^|_)(API_?KEY|KEY|PASSPHRASE|PASSWD|PASSWORD|SECRET|TOKEN)$")
_LOGIN_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")
_SECRET_OPTIONS = frozenset({name.lower() for name in SECRETS} | {"api_key"})


def unknown(part: Any, schema: type[BaseModel], where: str) -> Iterator[str]:
    """Fields of `part` that `schema` does not have and Serve would pass over in silence. `where` ends in a dot."""
    known = sorted(schema.model_fields)
    for name in part if isinstance(part, Mapping) else ():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            yield f"{where}{name} is no field of a Serve config; {hint}"


def scaling_faults(scaling: Any, where: str) -> Iterator[str]:
    """What Ray does not know or cannot use in an autoscaling_config. Imports Ray."""
    from ray.serve.config import AutoscalingConfig

    if not isinstance(scaling, Mapping):
        yield f"{where} is {scaling!r}: it is a mapping, of min_replicas and others"
        return
    yield from unknown(scaling, AutoscalingConfig, f"{where}.")
    try:
        AutoscalingConfig.model_validate(scaling)
    except ValidationError as error:
        yield from invalid(error, where)


def invalid(error: ValidationError, where: str = "", whole: str = "file") -> Iterator[str]:
    """One line for each error of pydantic's: the place below `where`, or `whole`, and what is wrong with it."""
    for found in error.errors():
        # A fault between two fields has no place of its own.
        place = _below(where, *map(str, found["loc"])) or whole
        yield f"{place}: {' '.join(found['msg'].removeprefix('Value error, ').split())}"


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
