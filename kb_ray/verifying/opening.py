"""Whether an episode opens as the run's template makes it open for its task (pure).

What the opening says of the machine (GPU, versions of PyTorch and Triton) stands nowhere else and is taken from it, and
retrieved examples come from an index that is not here: all the rest is made again. Only where the run was begun with
this very wording, and with a template that comes with kb_ray.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from typing import Literal

from kb_ray.prompts.opening import PromptSetting, opening_messages, template_names, template_text
from kb_ray.records import Episode, Message
from kb_ray.verifying.findings import Found
from kb_ray.verifying.rules import Rules

_MACHINE = re.compile(
    r"Kernels run (?:in Triton's interpreter on a CPU|on an NVIDIA GPU|on a GPU \((?P<gpu>.+?)\))"
    r"(?:, with (?:PyTorch (?P<torch>.+?))?(?: and )?(?:Triton (?P<triton>.+?))?)?\.$",
    re.MULTILINE,
)
_EXAMPLES = "\0examples\0"
"""Stands for what an index gave: no program holds it."""
_DEVICES: tuple[Literal["cuda", "cpu"], ...] = ("cuda", "cpu")


def opening_faults(episode: Episode, rules: Rules) -> Iterator[Found]:
    """That the opening is another one, where it can be made again."""
    template = template_of(rules)
    if template is None:
        return
    said = tuple(takewhile(lambda message: message.role != "assistant", episode.messages))
    devices = [device for device in _DEVICES if rules.asked_for in (None, device)]
    if not any(_same(said, _made(episode, said, template, device)) for device in devices):
        yield "prompt", f"its opening is not what the template {template} makes of its task"


def template_of(rules: Rules) -> str | None:
    """Name of the run's template; None where it is the user's own, or of another wording."""
    return _templates().get(rules.prompt or "") if rules.same_wording else None


@cache
def _templates() -> dict[str, str]:
    """Name by what runs tell of their template: a hash of its text, or in training its name."""
    names = {name: name for name in template_names()}
    return names | {hashlib.sha256(template_text(name).encode()).hexdigest()[:16]: name for name in names}


def _made(
    episode: Episode, said: Sequence[Message], template: str, device: Literal["cuda", "cpu"]
) -> tuple[Message, ...]:
    machine = _MACHINE.search(said[-1].content) if said else None
    setting = PromptSetting(template=template, device=device, **(machine.groupdict() if machine else {}))
    return opening_messages(episode.task, setting, _EXAMPLES)


def _same(said: Sequence[Message], made: Sequence[Message]) -> bool:
    return len(said) == len(made) and all(map(_fits, said, made))


def _fits(said: Message, made: Message) -> bool:
    before, examples, after = made.content.partition(_EXAMPLES)
    if not examples:
        return said == made
    same = said.content.startswith(before) and said.content[len(before) :].endswith(after)
    return same and said == made.model_copy(update={"content": said.content})
