"""argparse for which a mistake on the command line is an error of ours, told in one line, in place of its usage block.

Knows no flag.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from kb_ray.errors import ConfigError


class FlagParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse prints its usage and exits; subcommands get parsers of this kind too."""

    def error(self, message: str) -> NoReturn:
        """ConfigError: what is wrong with which flag, and where all of them are listed."""
        raise ConfigError(f"{message.removeprefix('argument ')}; see {self.prog} --help")
