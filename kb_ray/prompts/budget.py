"""Which parts of a conversation are given up, in which order, when it does not fit a model's window. Pure.

A conversation is an opening, then an answer and its feedback for each turn. `Forms` are what may be sent of it,
from everything to the least; tokens are bounded or estimated from the text alone. Knows no window and no server:
who sends picks the first form that fits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, overload

from kb_ray.records import Message, Turn

MAX_WITHOUT_CODE: Final = 1200
"""Characters that are left of a shortened answer in which no code was found."""

_FULL, _CODE, _GONE = range(3)
_PER_MESSAGE = 16
"""Tokens that a chat template puts around one message: role names and marks take 4 to 10."""
_AROUND = 64
"""Tokens that it puts before and after all of them; some state a date or tools."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_FOLLOWERS = (
    "abcdfgiklmnprstuvwxy baceijlorsuy cacehiklmorstuy dadeilorsuy eabcdefgilmnopqrstvwxy faefilorstuy gaeghilnorsu "
    "haeiortu iabcdefgklmnoprstvxz jeou kaeilnsw ladefilopstuy mabeilmopsu nacdefgiklnopstuvy oabcdefgiklmnoprstuvw "
    "padeiloprstuy qu rabcdefgiklmnoprstuvwy sacehiklmnopstuwy tacdefhilmoprstuwy uabcdefgilmnprst vaeio waehinors "
    "xaceipt yinopst zei"
)
"""Letters, each in front of those that often follow it: the 300 commonest pairs in words of Python's library."""
_FAMILIAR = frozenset(group[0] + letter for group in _FOLLOWERS.split() for letter in group[1:])
_LONGEST_WORD = 12
_SPACE = re.compile(r"(?<!\s) (?=[!-/:-~])")
_SPACES = re.compile(r"  +")

Messages = tuple[Message, ...]


class Forms(Sequence[Messages]):
    """What may be sent after `turns`, each form shorter than the one before; the first one is everything.

    Reasoning is in none of them: it goes first, always. Then the prose around the code goes, from the oldest
    answer to the last one; then whole turns, the oldest first. The opening, the last turn and its feedback, and
    the turn with index `best` stay in every form. The shorter ones are made when one of them is asked for: most
    conversations fit.
    """

    def __init__(self, opening: Messages, turns: Sequence[Turn], best: int | None) -> None:
        self._opening, self._turns, self._best = opening, turns, best
        self._whole = _conversation(opening, turns, [_FULL] * len(turns))

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> Messages: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Messages, ...]: ...
    def __getitem__(self, index: int | slice) -> Messages | tuple[Messages, ...]:
        return self._whole if index == 0 else self._all[index]

    @cached_property
    def _all(self) -> tuple[Messages, ...]:
        last = len(self._turns) - 1
        shape = [_FULL] * len(self._turns)
        found = [self._whole]
        steps = [(index, _CODE) for index in range(len(self._turns))]
        steps += [(index, _GONE) for index in range(len(self._turns)) if index not in (self._best, last)]
        for index, form in steps:
            shape[index] = form
            shorter = _conversation(self._opening, self._turns, shape)
            if shorter != found[-1]:
                found.append(shorter)
        return tuple(found)


def most_tokens(messages: Sequence[Message]) -> int:
    """Tokens that `messages` can have at most: no tokenizer makes more of a text than it has bytes."""
    text = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    return text + _PER_MESSAGE * len(messages) + _AROUND


def estimated_tokens(messages: Sequence[Message]) -> int:
    """Tokens of `messages` where nobody counts them, rather too many: about twice what they are for code.

    Two letters of a word make a token (`loadTile` is two words), four capitals three, and letters that belong to no
    word one each: behind the twelfth, and the second one of a pair that words rarely have (of capitals, of two such
    pairs). A blank before a word or sign makes none, several blanks half a token each, and every other byte one: line
    ends, tabs, digits and signs are often tokens of their own.
    """
    text = "".join(message.content for message in messages)
    words = Counter(_WORD.findall(text))
    blanks = [len(run) for run in _SPACES.findall(text)]
    free = len(_SPACE.findall(text))
    rest = len(text.encode("utf-8", "surrogatepass")) - sum(map(len, words.elements())) - free
    tokens = (
        sum(_word_tokens(word) * times for word, times in words.items()) + rest - sum(length // 2 for length in blanks)
    )
    return tokens + _PER_MESSAGE * len(messages) + _AROUND


def _word_tokens(word: str) -> int:
    common, rest = min(len(word), _LONGEST_WORD), max(len(word) - _LONGEST_WORD, 0)
    unfamiliar = sum(a + b not in _FAMILIAR for a, b in pairwise(word[:_LONGEST_WORD].lower()))
    if word.isupper():
        return min((3 * common + 3) // 4 + unfamiliar // 2, common) + rest
    return min(max(-(-common // 2), min(common, 2)) + unfamiliar, common) + rest


def _conversation(opening: Messages, turns: Sequence[Turn], shape: Sequence[int]) -> Messages:
    said = [m if m.reasoning is None else m.model_copy(update={"reasoning": None}) for m in opening]
    for turn, form in zip(turns, shape, strict=True):
        if form == _GONE:
            continue
        text = turn.completion.text
        said.append(Message(role="assistant", content=_without_prose(turn) if form == _CODE else text))
        said.append(Message(role="user", content=turn.feedback_given or ""))
    return tuple(said)


def _without_prose(turn: Turn) -> str:
    """The answer's code alone, or its beginning and end where it has none; never longer than the answer."""
    text = turn.completion.text
    if turn.triton_code is not None:
        shorter = f"<triton>\n{turn.triton_code.rstrip()}\n</triton>"
    elif len(text) > MAX_WITHOUT_CODE:
        mark = "\n[...]\n"
        half = (MAX_WITHOUT_CODE - len(mark)) // 2
        shorter = text[:half] + mark + text[-half:]
    else:
        return text
    return shorter if len(shorter) < len(text) else text
