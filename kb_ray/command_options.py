"""Flags of the smaller commands, read into a settings class, with one line for what is wrong, worded as for a run's.

For commands without a YAML file and a fingerprint; those of runs are parsed in config_sources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_settings import CliApp, CliPositionalArg, SettingsError

from kb_ray.errors import ConfigError
from kb_ray.setting_names import flag, mistake, nearest

Options = TypeVar("Options", bound=BaseModel)
_POSITIONAL = get_args(CliPositionalArg)[1]
"""What marks a field that is given by its place."""


def parse_options(options: type[Options], argv: Sequence[str]) -> Options:
    """`argv` as `options`. ConfigError names each flag that cannot be used."""
    try:
        return CliApp.run(options, cli_args=list(argv), cli_exit_on_error=False)
    except ValidationError as error:
        told = "; ".join(f"{flag(str(detail['loc'][0]))}: {mistake(detail)}" for detail in error.errors())
        raise ConfigError(told) from None
    except SettingsError as error:
        told = str(error).removeprefix("error parsing CLI: ").removeprefix("argument ")
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", told)
        told += _meant(options, unknown[1]) if unknown else ""
        raise ConfigError(f"{told}; see {options.model_config.get('cli_prog_name')} --help") from None


def _meant(options: type[BaseModel], unknown: str) -> str:
    """The end of an error's line on a flag that is none; what is given by its place has none."""
    advice = nearest(unknown, [flag(name) for name in options.model_fields])
    placed = [name for name, field in options.model_fields.items() if _POSITIONAL in field.metadata]
    meant = next((name for name in placed if advice == nearest(flag(name), [flag(name)])), None)
    return f"; {meant.upper()} is given without a flag" if meant else advice
