"""Flags of the smaller commands, read into a settings class, with one line for what is wrong.

For commands without a YAML file and a fingerprint; those of runs are parsed in config_sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_settings import CliApp, SettingsError

from kb_ray.errors import ConfigError

Options = TypeVar("Options", bound=BaseModel)


def parse_options(options: type[Options], argv: Sequence[str]) -> Options:
    """`argv` as `options`. ConfigError names each flag that cannot be used."""
    try:
        return CliApp.run(options, cli_args=list(argv), cli_exit_on_error=False)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"{told}; see --help") from None
    except SettingsError as error:
        raise ConfigError(f"{error}; see --help") from None
