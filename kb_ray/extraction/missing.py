"""Why an answer holds no candidate, in words: truncated where the token limit cut it, no_code otherwise.

Says only what is known: of thinking that a server took out of the text it is not known whether it had ended.
"""

from __future__ import annotations

from kb_ray.extraction.reasoning import Split
from kb_ray.extraction.syntax import ENTRY_PATTERN, ENTRY_POINTS
from kb_ray.records import Completion, NoCandidate


def nothing_found(answer: str, parts: Split, completion: Completion, readable: bool, marked: bool) -> NoCandidate:
    """The reason. `marked` says whether the answer has marked blocks, `readable` whether one can hold Python."""
    thoughts = "\n".join(part for part in (completion.reasoning, parts.reasoning) if part)
    if completion.finish_reason == "length":
        where = _cut_where(answer, parts, completion, marked)
        reason, status = f"the answer was cut at the token limit, {where}", "truncated"
    else:
        looked_for = "looked for <triton>...</triton>, a fenced block, or plain code that defines"
        reason = f"{_why_none(answer, parts, completion, readable)}; {looked_for} {' or '.join(ENTRY_POINTS)}"
        status = "no_code"
    if not answer.strip() and ENTRY_PATTERN.search(thoughts):
        reason += "; drafts in the thinking are never taken"
    return NoCandidate.model_validate({"status": status, "reason": reason})


def _cut_where(answer: str, parts: Split, completion: Completion, marked: bool) -> str:
    if parts.open:
        return "inside its thinking"
    if not answer.strip():
        return "inside its thinking or right behind it" if completion.reasoning else "before it began"
    return "inside its code" if marked or ENTRY_PATTERN.search(answer) else "before its code"


def _why_none(answer: str, parts: Split, completion: Completion, readable: bool) -> str:
    if answer.strip():
        return (
            "the code blocks of the answer define no function and no class" if readable else "the answer holds no code"
        )
    if parts.open:
        return "the answer ends inside its thinking, which was never closed"
    if completion.reasoning:
        return "the answer is empty: the model only thought, and closed its thinking at the very end or never closed it"
    return "the answer is empty"
