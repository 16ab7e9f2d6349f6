"""The script that comes with the package: answers to the built-in tasks, right ones and many kinds of wrong.

Answers are put together from script/answers.json, which says how each one goes, and script/kernels/*.py.
Most bugs are a small edit to a right kernel, so that each can be seen at a glance. What a verdict will be is
not known here.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import TypeAdapter

from kb_ray.model.script_file import ScriptLine
from kb_ray.records import Record

_FOLDER = files("kb_ray.model") / "script"


class Answer(Record):
    """How one answer of the built-in script is put together."""

    before: str
    """Prose above the code."""
    after: str = ""
    """Prose below the code."""
    kernel: str | None = None
    """File of script/kernels without .py; None gives an answer without code."""
    edits: tuple[tuple[str, str], ...] = ()
    """(old, new) replacements in the kernel; each old text stands there exactly once."""
    mark: Literal["fence", "triton"] = "fence"
    """Whether the code stands in a fenced block or between <triton> tags."""
    think: str | None = None
    """Thinking in the text itself, between <think> tags."""
    reasoning: str | None = None
    """Thinking in the server's own field."""
    cut_before: str | None = None
    """The answer ends before this text, as if it had met the token limit."""

    def text(self) -> str:
        """The whole answer. ValueError where an edit or a cut does not apply."""
        thinking = f"<think>\n{self.think}\n</think>\n" if self.think else ""
        whole = "\n\n".join(part for part in (thinking + self.before, self._code(), self.after) if part)
        return whole[: _only(whole, self.cut_before)] if self.cut_before else whole

    def _code(self) -> str:
        if self.kernel is None:
            return ""
        code = (_FOLDER / "kernels" / f"{self.kernel}.py").read_text(encoding="utf-8")
        for old, new in self.edits:
            _only(code, old)
            code = code.replace(old, new)
        return f"<triton>\n{code}</triton>" if self.mark == "triton" else f"```python\n{code}```"


@cache
def builtin_script() -> tuple[ScriptLine, ...]:
    """One line for every built-in task."""
    raw = (_FOLDER / "answers.json").read_bytes()
    answers = TypeAdapter(dict[str, tuple[Answer, ...]]).validate_json(raw)
    return tuple(
        ScriptLine(
            task=task,
            turns=tuple(answer.text() for answer in turns),
            reasoning=tuple(answer.reasoning for answer in turns),
            finish_reason=tuple("length" if answer.cut_before else "stop" for answer in turns),
        )
        for task, turns in answers.items()
    )


def _only(text: str, part: str) -> int:
    """Where `part` stands in `text`, once."""
    if text.count(part) != 1:
        raise ValueError(f"{part!r} must stand exactly once in the answer, not {text.count(part)} times")
    return text.index(part)
