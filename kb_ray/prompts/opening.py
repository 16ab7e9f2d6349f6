"""The opening messages of an episode: a Markdown template filled in with one task.

Wording stands in `templates/*.md`; here is only what depends on the task and on where kernels will run.
Knows nothing of models, turns or token counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal

from kb_ray.errors import ConfigError
from kb_ray.records import Message, Record, Task

_SECTION = re.compile(r"^<!-- (system|user) -->\n", re.MULTILINE)


class PromptSetting(Record):
    """Which template is used, and what it can say about the machine that runs the kernels."""

    template: str = "default"
    """Name of a template that comes with kb_ray, or the path of a Markdown file."""
    device: Literal["cuda", "cpu"]
    gpu: str | None = None
    """The GPU's name, e.g. `NVIDIA H100 80GB HBM3`; None: not named in the prompt."""
    torch: str | None = None
    """Version of PyTorch, likewise."""
    triton: str | None = None


def opening_messages(task: Task, setting: PromptSetting, examples: str = "") -> tuple[Message, ...]:
    """The messages of the first request: a system message, where the template has one, and the user's.

    `examples`: pairs of program and kernel as text, for templates that show them.
    Raises ConfigError for a template that does not exist or does not hold together.
    """
    values = {
        "reference": fenced(task.reference_code.strip("\n"), "python"),
        "environment": _environment(setting),
        "inputs": _inputs(task),
        "entry_advice": _entry_advice(task),
        "device_rule": _device_rule(setting),
        "examples": examples,
    }
    messages = []
    for role, text in _sections(setting.template):
        try:
            content = Template(text).substitute(values)
        except (KeyError, ValueError) as error:
            known = ", ".join(f"${name}" for name in values)
            raise ConfigError(
                f"prompt template {setting.template}: cannot fill in {error}; it may use {known}, and $$ for $"
            ) from None
        messages.append(Message(role=role, content=content.strip() + "\n"))
    return tuple(messages)


def template_names() -> tuple[str, ...]:
    """Names of the templates that come with kb_ray."""
    names = (entry.name for entry in (files("kb_ray.prompts") / "templates").iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


@cache
def template_text(name: str) -> str:
    """The raw text of a template, by name or path. Raises ConfigError where there is none."""
    if name in template_names():
        return (files("kb_ray.prompts") / "templates" / f"{name}.md").read_text("utf-8")
    try:
        return Path(name).read_text("utf-8-sig")
    except (OSError, ValueError):
        choice = ", ".join(template_names())
        raise ConfigError(
            f"prompt template {name!r} cannot be read; name one of {choice}, or the path of a Markdown file"
        ) from None


def shows_examples(name: str) -> bool:
    """Whether a template has a place for examples. Raises ConfigError where there is no such template."""
    return _asks_for(template_text(name), "examples")


def _asks_for(text: str, place: str) -> bool:
    """Whether a template has this place: $place or ${place}, and not $$place, which is text."""
    return any(place in (match["named"], match["braced"]) for match in Template.pattern.finditer(text))


def prompt_hash(messages: Sequence[Message]) -> str:
    """16 hex digits of the SHA-256 of the messages' roles and contents as canonical JSON.

    Reasoning is left out: it is kept with the trace and is not part of what is asked.
    """
    canonical = [{"content": message.content, "role": message.role} for message in messages]
    text = json.dumps(canonical, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def fenced(text: str, label: str = "") -> str:
    """Text in a Markdown fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{label}\n{text}\n{fence}"


def _sections(name: str) -> list[tuple[Literal["system", "user"], str]]:
    parts = _SECTION.split(template_text(name))
    found: list[tuple[Literal["system", "user"], str]] = []
    for role, text in zip(parts[1::2], parts[2::2], strict=True):
        found.append(("system" if role == "system" else "user", text))
    if [role for role, _ in found] not in (["user"], ["system", "user"]) or not _asks_for(found[-1][1], "reference"):
        raise ConfigError(
            f"prompt template {name}: it needs a line `<!-- user -->`, after a `<!-- system -->` part or alone, "
            "and $reference in the user's part"
        )
    return found


def _environment(setting: PromptSetting) -> str:
    versions = [("PyTorch", setting.torch), ("Triton", setting.triton)]
    known = " and ".join(f"{name} {version}" for name, version in versions if version)
    if setting.device == "cpu":
        where = "Kernels run in Triton's interpreter on a CPU"
    else:
        where = f"Kernels run on a GPU ({setting.gpu})" if setting.gpu else "Kernels run on an NVIDIA GPU"
    return f"{where}, with {known}." if known else f"{where}."


def _inputs(task: Task) -> str:
    if not task.input_shapes:
        return ""
    lines = [f"- `{name}`: {spec.dtype}, shape {list(spec.shape)}" for name, spec in task.input_shapes.items()]
    return "\n".join(["", "It is called with these inputs:", *lines, ""])


def _entry_advice(task: Task) -> str:
    if task.style == "function":
        return f"Here `triton_kernel_wrapper`, with the parameters of `{task.entry_point}`, fits best."
    return f"Here `ModelNew`, built like `{task.entry_point}`, fits best if there are weights."


def _device_rule(setting: PromptSetting) -> str:
    if setting.device == "cpu":
        return "Inputs are CPU tensors. Allocate on the device of the inputs and never call `.cuda()`."
    return "Inputs and weights are on the GPU already. Allocate on the device of the inputs."
