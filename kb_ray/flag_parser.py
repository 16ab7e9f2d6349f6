"""argparse for which a mistake on the command line is an error of ours, told in one line, in place of its usage block.

Knows no flag.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from kb_ray.errors import ConfigError
from kb_ray.setting_names import nearest


class FlagParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse prints its usage and exits; subcommands get parsers of this kind too."""

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """As argparse's own, but for what is said of arguments that nobody knows."""
        found, unknown = self.parse_known_args(None if args is None else list(args), namespace)
        if unknown:
            commands, chosen = _subcommands(self, found)
            # The flags of a subcommand stand in its own help alone.
            commands.get(chosen, self).error(
                f"unrecognized arguments: {' '.join(unknown)}{_meant(unknown, self, commands, chosen)}"
            )
        return found

    def error(self, message: str) -> NoReturn:
        """ConfigError: what is wrong with which flag, and where all of them are listed."""
        raise ConfigError(f"{message.removeprefix('argument ')}; see {self.prog} --help")


Parsers = Mapping[str, argparse.ArgumentParser]


def _subcommands(parser: argparse.ArgumentParser, found: argparse.Namespace) -> tuple[Parsers, str]:
    """Parsers of a command's subcommands, and the name of the one that was given; both empty where it has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices, getattr(found, action.dest, "")
    return {}, ""


def _meant(unknown: Sequence[str], parser: argparse.ArgumentParser, commands: Parsers, chosen: str) -> str:
    """The end of an error's line on the first flag that is none here: whose it is, or what it is near to."""
    name = next((word.partition("=")[0] for word in unknown if word.startswith("--")), None)
    if name is None:
        return ""
    owners = [command for command, its in commands.items() if name in its._option_string_actions]
    if chosen in owners:
        return f"; {name} goes after {chosen}"
    if owners:
        return f"; {name} is a flag of {' and '.join(owners)}"
    return nearest(name, [*commands.get(chosen, parser)._option_string_actions])
