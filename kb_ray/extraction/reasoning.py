"""Separates an answer from the thinking that stands in the same text.

Knows the tags models think in and nothing of code: what a draft inside the thinking looks like is irrelevant,
because drafts are never candidates.
"""

from __future__ import annotations

import re

_NAMES = "think|thinking|reasoning|thought"
# An opening tag starts its line, so that prose about `<think>` in mid-sentence is not taken for one. A
# closing tag may stand anywhere but in inline code: one backtick on either side (a fence has more).
# Models that think in channels leave their marks where a server does not take them out.
_TAG = re.compile(
    rf"(?P<open>^[ \t]*<(?:{_NAMES})>|<\|channel\|>analysis<\|message\|>)"
    rf"|(?<!(?<!`)`)</(?:{_NAMES})>|</(?:{_NAMES})>(?!`)"
    r"|(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>",
    re.IGNORECASE | re.MULTILINE,
)


def split_reasoning(text: str) -> tuple[str, str | None]:
    """(answer, reasoning) of a model's raw text; reasoning is None where there is none.

    A closing tag without an opening one makes everything before it reasoning (chat templates often put the
    opening tag into the prompt). Thinking that is never closed reaches to the end of the text.
    """
    answer: list[str] = []
    reasoning: list[str] = []
    position, thinking, seen = 0, False, False
    for tag in _TAG.finditer(text):
        if tag["open"] and thinking:
            continue
        seen = True
        piece = text[position : tag.start()]
        position = tag.end()
        if tag["open"]:
            answer.append(piece)
        elif thinking:
            reasoning.append(piece)
        else:
            reasoning.extend((*answer, piece))
            answer.clear()
        thinking = bool(tag["open"])
    if not seen:
        return text, None
    (reasoning if thinking else answer).append(text[position:])
    return "".join(answer).strip(), "\n".join(part.strip() for part in reasoning if part.strip()) or None


def unclosed_reasoning(text: str) -> bool:
    """Whether the text ends inside thinking that was opened and never closed."""
    tags = list(_TAG.finditer(text))
    return bool(tags) and tags[-1]["open"] is not None
