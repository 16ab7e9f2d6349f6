"""argparse for which a mistake on the command line is an error of ours, told in one line, in place of its usage block.

Knows no flag.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from kb_ray.errors import ConfigError
from kb_ray.setting_names import nearest

Parsers = Mapping[str, argparse.ArgumentParser]


class FlagParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse prints its usage and exits; subcommands get parsers of this kind too."""

    _given: Sequence[str] = ()
    """What is being parsed, until it is."""

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """As argparse's own, but for what is said of arguments that nobody knows."""
        found, unknown = self.parse_known_args(None if args is None else list(args), namespace)
        if unknown:
            commands, dest = _subcommands(self)
            self._refuse(unknown, commands, getattr(found, dest, ""))
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's own, which calls it of a subcommand's parser too."""
        self._given = list(sys.argv[1:] if args is None else args)
        try:
            return super().parse_known_args(self._given, namespace)
        finally:
            self._given = ()

    def error(self, message: str) -> NoReturn:
        """ConfigError: what is wrong with which flag, and where all of them are listed.

        A flag that nobody knows comes first: where it is a misspelt one, argparse misses that or takes its value for
        something else.
        """
        commands, _ = _subcommands(self)
        given, self._given = self._given, ()
        if unknown := unknown_flags(given, self._option_string_actions, commands, abbreviated=self.allow_abbrev):
            self._refuse(unknown, commands, next((word for word in given if word in commands), ""))
        raise ConfigError(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def _refuse(self, unknown: Sequence[str], commands: Parsers, chosen: str) -> NoReturn:
        own = {name: parser._option_string_actions for name, parser in commands.items()}
        meant = whose(unknown, own, chosen) or advice(unknown, own.get(chosen) or _flags_of(self, commands))
        # The flags of a subcommand stand in its own help alone.
        parser = commands.get(chosen, self)
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")


def unknown_flags(
    given: Sequence[str], known: Collection[str], commands: Collection[str] = (), *, abbreviated: bool = False
) -> list[str]:
    """Flags in `given` that are none of those `known`, up to the first subcommand, whose flags are its own. As argparse
    sees it: what begins with `--` is never the value of another flag, what has a space in it is."""
    found = []
    for word in given:
        if word == "--" or word in commands:
            break
        name = word.partition("=")[0]
        if not name.startswith("--") or " " in word or name in known:
            continue
        if not (abbreviated and any(flag.startswith(name) for flag in known)):
            found.append(word)
    return found


def whose(unknown: Sequence[str], commands: Mapping[str, Collection[str]], chosen: str) -> str:
    """The end of an error's line on the first flag that is none here: which subcommands have it; empty for none."""
    name = _first(unknown)
    owners = [command for command, flags in commands.items() if name in flags]
    if chosen in owners:
        return f"; {name} goes after {chosen}"
    return f"; {name} is a flag of {' and '.join(owners)}" if owners else ""


def advice(unknown: Sequence[str], known: Collection[str]) -> str:
    """The end of an error's line on the first flag that is none: which it is near to; empty for none."""
    name = _first(unknown)
    return nearest(name, [*known]) if name else ""


def _first(unknown: Sequence[str]) -> str:
    return next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")


def _subcommands(parser: argparse.ArgumentParser) -> tuple[Parsers, str]:
    """Parsers of a command's subcommands, and where argparse keeps the name of the one that was given; both empty
    where it has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices, action.dest
    return {}, ""


def _flags_of(parser: argparse.ArgumentParser, commands: Parsers) -> list[str]:
    """Flags of a command and of all its subcommands, each once."""
    return [*dict.fromkeys(flag for one in (parser, *commands.values()) for flag in one._option_string_actions)]
