"""What is said of a flag that nobody knows, or that another subcommand knows."""

from __future__ import annotations

import pytest

from kb_ray.errors import ConfigError
from kb_ray.flag_parser import FlagParser


def parser() -> FlagParser:
    """A command with three subcommands, and one flag that two of them have."""
    found = FlagParser(prog="tool")
    commands = found.add_subparsers(dest="command", required=True)
    for name, flags in {"look": ("--limit", "--colour"), "make": ("--limit",), "sell": ("--colour",)}.items():
        command = commands.add_parser(name)
        command.add_argument("what", nargs="?")
        for flag in flags:
            command.add_argument(flag)
    return found


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("make --limt 3", "--limt; did you mean --limit?; see tool make --help"),
        ("make --limt=3", "--limt=3; did you mean --limit?; see tool make --help"),
        ("make --colour 3", "--colour; --colour is a flag of look and sell; see tool make --help"),
        ("make --colour=3", "--colour=3; --colour is a flag of look and sell; see tool make --help"),
        ("make --colou 3", "--colou; see tool make --help"),
        ("sell --limit 3", "--limit; --limit is a flag of look and make; see tool sell --help"),
        ("--colour=3 look", "--colour=3; --colour goes after look; see tool look --help"),
        ("look a b --limt", "b --limt; did you mean --limit?; see tool look --help"),
        ("look a b", "b; see tool look --help"),
    ],
)
def test_only_flags_of_the_subcommand_that_was_given_are_meant(argv: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parser().parse_args(argv.split())
    assert str(raised.value) == f"unrecognized arguments: {said}"


def test_without_subcommands_all_flags_are_the_commands_own() -> None:
    plain = FlagParser(prog="tool")
    plain.add_argument("--reference")
    with pytest.raises(
        ConfigError, match=r"^unrecognized arguments: --refrence; did you mean --reference\?; see tool --"
    ):
        plain.parse_args(["--refrence"])
    assert plain.parse_args(["--reference", "x"]).reference == "x"
