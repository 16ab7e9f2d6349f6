"""Flags of the smaller commands, read into a settings class, with one line for what is wrong, worded as for a run's.

For commands without a YAML file and a fingerprint; those of runs are parsed in config_sources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_settings import CliApp, SettingsError

from kb_ray.errors import ConfigError
from kb_ray.setting_names import flag, mistake, nearest

Options = TypeVar("Options", bound=BaseModel)


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
        told += nearest(unknown[1], [flag(name) for name in options.model_fields]) if unknown else ""
        raise ConfigError(f"{told}; see {options.model_config.get('cli_prog_name')} --help") from None
