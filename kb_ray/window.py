"""Whether a prompt fits a model's window beside its answer, and whether a plan's first prompts do.

One way to count for questions that are put and for those that are only looked at: what a dry run accepts is then
sent. Knows nothing of what is given up where a conversation does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError
from kb_ray.model.completer import Completer
from kb_ray.prompts.budget import Messages, estimated_tokens, most_tokens
from kb_ray.records import Task

_LOOKED_AT = 50
"""First prompts that are looked at: each may take a lookup of examples and a request to the server."""


@dataclass(frozen=True)
class Window:
    """The window of the model that answers, as a run's settings share it out between prompt and answer."""

    config: RunConfig
    completer: Completer

    @property
    def size(self) -> int | None:
        """Tokens of both together; None where nobody says."""
        known = [size for size in (self.config.context, self.completer.window) if size is not None]
        return min(known, default=None)

    @property
    def room(self) -> int | None:
        """Tokens that a prompt may have; None where nobody says."""
        return None if self.size is None else self.size - self.config.max_tokens

    async def tokens(self, messages: Messages) -> int:
        """Tokens of a prompt: a bound where that is below what there is room for, else counted, else estimated."""
        bound, room = most_tokens(messages), self.room
        if room is None or bound <= room:
            return bound
        counted = await self.completer.count_tokens(messages)
        return estimated_tokens(messages) if counted is None else counted


async def misfits(window: Window, tasks: Sequence[Task], opening: Callable[[Task], Messages]) -> str | None:
    """In one line, how many of the tasks' first prompts do not fit; None where all do or no window is known.

    Of many tasks some are looked at, the first one always. ConfigError where none of these fits: such a run would only
    note that.
    """
    size, room = window.size, window.room
    if size is None or room is None:
        return None
    looked_at = tasks[:: -(-len(tasks) // _LOOKED_AT)] if tasks else ()
    counts = [await window.tokens(opening(task)) for task in looked_at]
    over = [count for count in counts if count > room]
    if not over:
        return None
    some = "" if len(counts) == len(tasks) else f" looked at, out of {len(tasks)},"
    line = (
        f"{len(over)} of {len(counts)} first prompts{some} do not fit: the longest has {max(over)} tokens and the "
        f"answer up to {window.config.max_tokens}, but the window of {window.completer.model} holds {size}: "
        "lower --max-tokens, or use --prompt terse"
    )
    if len(over) == len(counts):
        raise ConfigError(line)
    return line
