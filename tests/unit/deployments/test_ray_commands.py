"""Ray's own commands as the pages have them: each exists and takes the flags that it is given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb_ray.cluster import known_address

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("cluster.md", "reward_functions.md")


def told(page: str) -> Iterator[list[str]]:
    """The words of each `ray ...` and `serve ...` that stands in a block of commands or in backticks."""
    text = (DOCS / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?:ray|serve) [a-z].*$", text, re.MULTILINE) + re.findall(
        r"`((?:ray|serve) [^`\n]+)`", text
    ):
        yield shlex.split(line.partition(" -- ")[0], comments=True)


def options(words: list[str]) -> set[str]:
    """The flags that the command named by `words` takes."""
    from ray.scripts.scripts import cli as ray
    from ray.serve.scripts import cli as serve

    command: Any = {"ray": ray, "serve": serve}[words[0]]
    for word in words[1:]:
        if not hasattr(command, "commands"):
            break
        assert word in command.commands, f"{words[0]} has no command {word}"
        command = command.commands[word]
    return {"--help", *(flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts))}


@pytest.mark.parametrize("page", PAGES)
def test_they_take_the_flags_that_they_are_given(page: str) -> None:
    commands = list(told(page))
    assert len(commands) >= 4
    for words in commands:
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given - options(words) == set(), " ".join(words)


def test_another_rays_ports_are_those_that_other_commands_are_then_given() -> None:
    text = (DOCS / "cluster.md").read_text(encoding="utf-8")
    (start,) = (words for words in told("cluster.md") if words[:3] == ["ray", "start", "--head"] and "--port" in words)
    value = dict(zip(start[3::2], start[4::2], strict=True))
    address, dashboard = f"127.0.0.1:{value['--port']}", f"http://127.0.0.1:{value['--dashboard-port']}"
    assert f"python -m kb_ray.generate --ray-address {address} " in text
    assert known_address(address) == (address, "--ray-address")
    assert f"serve deploy --address {dashboard} " in text
    assert f"ray job submit --address {dashboard} " in text
