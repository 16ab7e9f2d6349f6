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
from kb_ray.flag_parser import unknown_flags
from kb_ray.setting_names import flag, mistake, nearest

Options = TypeVar("Options", bound=BaseModel)
_POSITIONAL = get_args(CliPositionalArg)[1]
"""What marks a field that is given by its place."""
_UNKNOWN = "unrecognized arguments: "
"""How argparse begins to tell of them."""


def parse_options(options: type[Options], argv: Sequence[str]) -> Options:
    """`argv` as `options`. ConfigError names each flag that cannot be used."""
    try:
        return CliApp.run(options, cli_args=list(argv), cli_exit_on_error=False)
    except ValidationError as error:
        told = "; ".join(f"{flag(str(detail['loc'][0]))}: {mistake(detail)}" for detail in error.errors())
        raise ConfigError(told) from None
    except SettingsError as error:
        told = str(error).removeprefix("error parsing CLI: ").removeprefix("argument ")
        # A misspelt flag comes first: what is missing may be that one, or have been taken for its value.
        if not told.startswith(_UNKNOWN) and (unknown := unknown_flags(argv, _flags(options))):
            told = _UNKNOWN + " ".join(unknown)
        named = re.match(rf"{_UNKNOWN}(--[^\s=]+)", told)
        told += _meant(options, named[1]) if named else ""
        raise ConfigError(f"{told}; see {options.model_config.get('cli_prog_name')} --help") from None


def _flags(options: type[BaseModel]) -> list[str]:
    """All that there are, with those that say no to a switch."""
    placed = _placed(options)
    own = [flag(name) for name in options.model_fields if name not in placed]
    return [*own, *(f"--no-{name.removeprefix('--')}" for name in own), "--help"]


def _placed(options: type[BaseModel]) -> list[str]:
    """Fields that are given by their places."""
    return [name for name, field in options.model_fields.items() if _POSITIONAL in field.metadata]


def _meant(options: type[BaseModel], unknown: str) -> str:
    """The end of an error's line on a flag that is none; what is given by its place has none."""
    advice = nearest(unknown, [flag(name) for name in options.model_fields])
    meant = next((name for name in _placed(options) if advice == nearest(flag(name), [flag(name)])), None)
    return f"; {meant.upper()} is given without a flag" if meant else advice
