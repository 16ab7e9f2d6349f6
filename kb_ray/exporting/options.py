"""What an export is asked for, as one frozen record; and what its words mean.

Knows neither command lines nor files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

View = Literal["sft", "rl", "preference", "raw", "seed1", "kernelbench"]
Keep = Literal["correct", "fast", "best", "all"]
Conversation = Literal["whole", "last"]
Reasoning = Literal["drop", "field", "inline"]

VIEWS: tuple[View, ...] = get_args(View)


@dataclass(frozen=True)
class Filters:
    """Which episodes and answers are wanted; an empty set or None asks for nothing."""

    status: frozenset[str] = frozenset()
    """Statuses of the answer's verdict."""
    source: frozenset[str] = frozenset()
    level: frozenset[int] = frozenset()
    min_speedup: float | None = None
    """Trusted speedup of the answer at least."""
    max_speedup: float | None = None
    with_flag: frozenset[str] = frozenset()
    """One of these flags at least, of the task or of the verdict."""
    without_flag: frozenset[str] = frozenset()
    exclude_flagged: bool = False
    """No task that a kernel which computes nothing would pass."""
    trusted: bool = False
    """Only verdicts that nothing is held against: those of a GPU."""


@dataclass(frozen=True)
class ExportOptions:
    """How the rows of a view are made."""

    view: View
    filters: Filters = Filters()
    keep: Keep = "correct"
    """sft: answers that are correct; at least `target_speedup` fast; an episode's best turn; or all."""
    target_speedup: float = 1.0
    conversation: Conversation = "whole"
    """sft: all turns up to the answer, or the answer alone after the opening messages."""
    reasoning: Reasoning = "drop"
    """Left out, in a field `reasoning_content`, or in front of the answer in <think> tags."""
    margin: float = 1.2
    """preference: how many times faster the chosen answer is, where both are correct."""
    pairs_per_task: int = 4
    same_prompt: bool = False
    """preference: only answers to the very same messages."""
    allow_untimed: bool = False
    """rl: verdicts of a CPU become rewards too, for correctness alone."""
    near_duplicates: float | None = None
    """Answers this much alike (0 to 1) count once; None keeps them all."""
    licenses: dict[str, str] = field(default_factory=dict)
    """Licence by source, where the user knows better."""
