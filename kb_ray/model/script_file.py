"""The format of a script: JSON lines, each with the answers to one task or to a pattern of tasks.

    {"task": "builtin/1/*", "turns": ["first answer", ...], "reasoning": [...], "finish_reason": [...]}

`reasoning` and `finish_reason` are optional and may be shorter than `turns`. Knows nothing of requests.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from kb_ray.errors import ConfigError
from kb_ray.records import Record


class ScriptLine(Record):
    """What a scripted model answers to the tasks that match, turn by turn."""

    task: str
    """A task id, or a pattern with `*`, `?` and `[..]`; `*` matches across slashes."""
    turns: tuple[str, ...] = Field(min_length=1)
    """Whole answers; the last one is repeated for later turns."""
    reasoning: tuple[str | None, ...] = ()
    """What the server's reasoning field would hold, by turn."""
    finish_reason: tuple[str, ...] = ()
    """By turn; `stop` where it is not said."""

    @model_validator(mode="after")
    def _no_more_than_turns(self) -> ScriptLine:
        if max(len(self.reasoning), len(self.finish_reason)) > len(self.turns):
            raise ValueError("reasoning and finish_reason cannot be longer than turns")
        return self

    def matches(self, task_id: str) -> bool:
        """Whether this line is about the task."""
        return self.task == task_id or fnmatchcase(task_id, self.task)

    def answer(self, turn: int) -> tuple[str, str | None, str]:
        """(text, reasoning, finish reason) of a turn, counted from 0."""
        index = min(turn, len(self.turns) - 1)
        reasoning = self.reasoning[index] if index < len(self.reasoning) else None
        finish = self.finish_reason[index] if index < len(self.finish_reason) else "stop"
        return self.turns[index], reasoning, finish


def read_script(path: str) -> tuple[ScriptLine, ...]:
    """The lines of a script file. ConfigError names the first line that cannot be used."""
    try:
        text = Path(os.path.expanduser(path)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(f"script {path}: cannot be read: {reason}") from error
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not numbered:
        raise ConfigError(f'script {path}: is empty; give lines such as {{"task": "*", "turns": ["..."]}}')
    return tuple(_read_line(path, number, line) for number, line in numbered)


def _read_line(path: str, number: int, line: str) -> ScriptLine:
    try:
        return ScriptLine.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field}: {first['msg']}" if field else first["msg"]
        raise ConfigError(f"script {path} line {number}: {reason}") from error
