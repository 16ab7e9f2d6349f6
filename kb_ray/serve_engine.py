"""What stands under `engine` of a model, asked of the vLLM that is installed here: names of arguments and of parsers.

A file may be looked at on a machine without vLLM; NotAsked says so. Values are not looked at: whether they fit one
another only a start tells.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Iterator, Mapping
from typing import Any

from kb_ray.errors import ConfigError
from kb_ray.serve_fields import nearest

_OF_RAY = ("model", "served_model_name")
"""Arguments of vLLM's that Ray sets itself, and refuses to be told."""
_PLUGINS = {"reasoning_parser": "reasoning_parser_plugin", "tool_call_parser": "tool_parser_plugin"}
"""Arguments that name a parser, and those that name a file which brings further ones."""


class NotAsked(ConfigError):
    """There is no vLLM here that could be asked."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What this vLLM knows."""

    arguments: frozenset[str]
    parsers: Mapping[str, frozenset[str]]
    """By the argument that names one."""


@functools.cache
def known() -> Known:
    """Imports vLLM, which takes some seconds. NotAsked where it is not here or cannot be imported."""
    if importlib.util.find_spec("vllm") is None:
        raise NotAsked("names under `engine` were not looked at: this Python has no vLLM to ask")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.launchers.cli_args import FrontendArgs
        from vllm.reasoning import ReasoningParserManager
        from vllm.tool_parsers import ToolParserManager
    # Built for another machine it fails in ways of its own: a library, a driver, a platform.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise NotAsked(f"names under `engine` were not looked at: vLLM cannot be imported here: {reason}") from error
    # ray.serve.llm takes those of the engine and those of the server alike.
    both: tuple[Any, ...] = (AsyncEngineArgs, FrontendArgs)
    return Known(
        arguments=frozenset(field.name for part in both for field in dataclasses.fields(part)),
        parsers={
            "reasoning_parser": frozenset(ReasoningParserManager.list_registered()),
            "tool_call_parser": frozenset(ToolParserManager.list_registered()),
        },
    )


def faults(engine: Mapping[str, Any], where: str) -> Iterator[str]:
    """One line for each name in `engine` that this vLLM does not know. NotAsked where it cannot be asked."""
    if not engine:
        return
    names = known()
    for name in engine:
        if name in _OF_RAY:
            yield f"{where}.{name}: Ray says it to vLLM, by the model's `source` and `model_id`"
        elif name not in names.arguments:
            yield f"{where}.{name} is no argument of this vLLM; {nearest(name, names.arguments)}"
    for argument, plugin in _PLUGINS.items():
        parser = engine.get(argument)
        if isinstance(parser, str) and parser and not engine.get(plugin) and parser not in names.parsers[argument]:
            yield f"{where}.{argument}: this vLLM has no {parser!r}; {nearest(parser, names.parsers[argument])}"
