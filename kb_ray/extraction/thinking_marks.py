"""The marks that model families think in, as one pattern: tags, channels, and what is left of them.

Knows how a mark is written and where it may stand to be one. Pairing them, and telling answer from thinking, is
done in `reasoning`.
"""

from __future__ import annotations

import re
from typing import Final

_NAMES = "think|thinking|thought|reasoning|reflection|seed:think|longcat_think|scratchpad"
_ANGLED = rf"< ?(?:{_NAMES}) ?>|◁think▷|\[THINK\]"
# A tag starts or ends its line or follows a sentence, so that prose about `<think>` in mid-sentence is not taken
# for one. A closing tag may stand anywhere but in inline code: one backtick on either side (a fence has more).
_OPEN = rf"^[ \t]*(?:{_ANGLED})|(?<=[.!?])[ \t]*(?:{_ANGLED})(?!`)|(?<!`)(?:{_ANGLED})(?=[ \t]*$)"
_SPECIAL_OPEN = (
    r"<\|(?:think|thinking|begin_of_thought|start_thinking|inner_prefix)\|>"
    r"|<\|channel>(?:thought|thinking|analysis)\b"
)
# Channels: all but the final one are thinking. A server that drops special tokens leaves their names, in lower case.
_CHANNEL = (
    r"(?:<\|end\|>\s*)?(?:<\|start\|>assistant)?<\|channel\|>\s*{}[^<\n]{{0,80}}"
    r"(?:<\|constrain\|>\s*\w*\s*)?<\|message\|>"
)
_LEFT_OPEN = r"(?-i:\Aanalysis(?=[A-Z]|[\s\S]*assistantfinal))"
_CLOSE = rf"</ ?(?:{_NAMES}) ?>"
_SPECIAL_CLOSE = (
    r"<\|/(?:think|thinking)\|>|<\|end_?(?:of_?thought|thinking)\|>|<\|inner_suffix\|>|<channel\|>|◁/think▷|\[/THINK\]"
    r"|(?:<\|end\|>\s*)?<\|begin\|>assistant<\|content\|>"
)
# Marks of an answer's beginning: they end thinking that is open, and mean nothing otherwise.
_BEGINNING = (
    r"(?-i:assistantfinal)|^here is my response:|^[ \t]*<(?:answer|response|solution|final_answer)>"
    r"|<\|(?:begin_of_solution|start_response|begin_of_box)\|>"
)

MARK: Final = re.compile(
    rf"(?P<open>{_OPEN}|{_SPECIAL_OPEN}|{_CHANNEL.format('(?:analysis|commentary)')}|{_LEFT_OPEN}"
    r"|^here is my thought process:)"
    rf"|(?P<beginning>{_BEGINNING})"
    rf"|(?<!(?<!`)`)(?:{_CLOSE})|(?:{_CLOSE})(?!`)|{_SPECIAL_CLOSE}|{_CHANNEL.format('final')}",
    re.IGNORECASE | re.MULTILINE,
)

_LAST = re.compile(r"<[|｜/]?[\w:▁ ]{1,40}[|｜]?>|◁/?\w+▷|\[/?\w+\]")


def substance_end(text: str) -> int:
    """Where the last of `text` ends that is neither blank nor a mark."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        at = max(text.rfind(first, max(end - 48, 0), end) for first in "<◁[")
        if at < 0 or not _LAST.fullmatch(text, at, end):
            return end
        end = at
