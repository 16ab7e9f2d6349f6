"""argparse for which a mistake on the command line is an error of ours, told in one line, in place of its usage block.

Knows no flag.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator
from typing import NoReturn

from kb_ray.errors import ConfigError


class FlagParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse prints its usage and exits; subcommands get parsers of this kind too."""

    def error(self, message: str) -> NoReturn:
        """ConfigError: what is wrong with which flag, and where all of them are listed."""
        raise ConfigError(f"{message.removeprefix('argument ')}{self._meant(message)}; see {self.prog} --help")

    def _meant(self, message: str) -> str:
        unknown = next((word for word in message.split() if word.startswith("--")), None)
        if unknown is None or not message.startswith("unrecognized arguments"):
            return ""
        close = difflib.get_close_matches(unknown.partition("=")[0], [*_flags(self)], n=1)
        return f"; did you mean {close[0]}?" if close else ""


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _flags(inner)
