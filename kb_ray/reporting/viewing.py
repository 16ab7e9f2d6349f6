"""An episode as the viewer shows it: texts of bounded length, line differences between turns, verdicts.

Only data, no markup: the page puts every text in as text.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

from kb_ray.records import Episode, Turn, Verdict
from kb_ray.reporting.mismatch import mismatch_of

MAX_TEXT = 60_000
"""Characters of one text at most; a model that repeats itself writes megabytes."""
_MAX_DIFF_LINES = 3000
_MAX_LINE = 1000
"""Characters of one line of a difference."""
_MAX_ITEMS = 10_000
"""Entries of one list: names of kernels and flags come from candidates, too."""
_CONTEXT = 3
_NOTE = 100
"""Characters at most of the note that a text was cut."""


def shown(episode: Episode) -> dict[str, Any]:
    """JSON values of one episode. No text in it is longer than MAX_TEXT, however it came there."""
    bounded: dict[str, Any] = _bounded(_told(episode))
    return bounded


def _told(episode: Episode) -> dict[str, Any]:
    task, turns = episode.task, episode.turns
    previous = [None, *(turn.triton_code for turn in turns)]
    return {
        "id": episode.episode_id,
        "task": task.task_id,
        "flags": list(task.flags),
        "reference": clip(task.reference_code),
        "stop": episode.stop_reason.value,
        "attempt": episode.attempt,
        "sample": episode.sample,
        "best": episode.best_turn,
        "error": clip(episode.error),
        "created": episode.created_at,
        "opening": [{"role": m.role, "content": clip(m.content)} for m in _opening(episode)],
        "turns": [
            _turn(turn, line_changes(before, turn.triton_code)) for turn, before in zip(turns, previous, strict=False)
        ],
    }


def clip(text: str | None) -> str | None:
    """`text`, at most MAX_TEXT characters of it, and how many are missing."""
    if text is None or len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[{len(text) - MAX_TEXT} more characters are in the trace store]"


def line_changes(before: str | None, after: str | None) -> list[list[list[Any]]] | None:
    """Hunks of changed lines with context, each a list of [sign, line], sign one of "+", "-", " ".

    None where there are not two programs to compare, or they are too long for it. A long line is cut, and what goes
    beyond MAX_TEXT characters is left out; a line in its place says so.
    """
    if before is None or after is None:
        return None
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MAX_DIFF_LINES:
        return None
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    hunks = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        hunk: list[list[Any]] = []
        for tag, a, b, c, d in group:
            if tag == "equal":
                hunk += [[" ", line] for line in old[a:b]]
            else:
                hunk += [["-", line] for line in old[a:b]] + [["+", line] for line in new[c:d]]
        hunks.append(hunk)
    return _fitting(hunks)


def _fitting(hunks: list[list[list[Any]]]) -> list[list[list[Any]]]:
    """The hunks with lines cut, up to MAX_TEXT characters in all."""
    room, kept, left_out = MAX_TEXT, list[list[list[Any]]](), 0
    for hunk in hunks:
        shown_lines = list[list[Any]]()
        for sign, line in hunk:
            cut = _cut_line(line)
            if left_out or len(cut) > room:
                left_out += 1
                continue
            room -= len(cut)
            shown_lines.append([sign, cut])
        if shown_lines:
            kept.append(shown_lines)
    if left_out:
        kept.append([[" ", f"[{left_out} more lines of changes are in the trace store]"]])
    return kept


def _cut_line(line: str) -> str:
    if len(line) <= _MAX_LINE:
        return line
    return f"{line[:_MAX_LINE]} [{len(line) - _MAX_LINE} more characters are in the trace store]"


def _bounded(value: Any) -> Any:
    """`value` with every text and every list in it of bounded length."""
    if isinstance(value, str):
        # What was clipped already has its note at the end.
        return value if len(value) <= MAX_TEXT + _NOTE else clip(value)
    if isinstance(value, dict):
        return {_bounded(key): _bounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_bounded(item) for item in value[:_MAX_ITEMS]]
        if len(value) > _MAX_ITEMS and isinstance(value[0], str):
            items.append(f"[{len(value) - _MAX_ITEMS} more are in the trace store]")
        return items
    return value


def _opening(episode: Episode) -> list[Any]:
    """The messages before the first answer."""
    found = []
    for message in episode.messages:
        if message.role == "assistant":
            break
        found.append(message)
    # Without a turn the whole conversation is what was asked.
    return found


def _turn(turn: Turn, changes: list[list[list[Any]]] | None) -> dict[str, Any]:
    answer = turn.completion
    return {
        "completion": clip(answer.text),
        "reasoning": clip(answer.reasoning),
        "finish": answer.finish_reason,
        "model": answer.model,
        "tokens": answer.usage.completion_tokens,
        "prompt_tokens": answer.usage.prompt_tokens,
        "latency": answer.latency_s,
        "code": clip(turn.triton_code),
        "rule": turn.extraction_rule,
        "feedback": clip(turn.feedback_given),
        "diff": changes,
        "verdict": _verdict(turn.verdict),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    """All of it but the single samples of times; long texts bounded."""
    timings = ("kernel_time", "reference_time", "compiled_time")
    fields = verdict.model_dump(exclude={name: {"samples_ms"} for name in timings})
    if verdict.error is not None:
        fields["error"]["detail"] = clip(verdict.error.detail)
        fields["error"]["message"] = clip(verdict.error.message)
    fields["status"], fields["stage"] = verdict.status.value, verdict.stage.value
    return fields | {"mismatch": mismatch_of(verdict.error)}
