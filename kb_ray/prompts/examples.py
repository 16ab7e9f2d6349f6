"""Pairs of a PyTorch program and its kernel, as a prompt shows them, and what they take of its window.

Knows neither where pairs come from nor which are worth showing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kb_ray.prompts.budget import estimated_tokens
from kb_ray.prompts.opening import fenced
from kb_ray.records import Message

_LABELS: Final = {"triton": ("Triton", "python"), "cuda": ("CUDA C++", "cpp")}


class ShownPair(NamedTuple):
    """One example of a prompt."""

    program: str
    kernel: str
    language: str
    """`triton` or `cuda`."""


def examples_text(pairs: Sequence[ShownPair]) -> str:
    """The pairs as Markdown, in their order; empty where there is none."""
    return "\n\n".join(_pair(number, pair) for number, pair in enumerate(pairs, start=1))


def example_tokens(pair: ShownPair) -> int:
    """Tokens of one pair in a prompt, rather too many."""
    return estimated_tokens((Message(role="user", content=_pair(1, pair)),))


def _pair(number: int, pair: ShownPair) -> str:
    name, fence = _LABELS[pair.language]
    program, kernel = pair.program.strip("\n"), pair.kernel.strip("\n")
    return f"### Example {number}\nPyTorch:\n{fenced(program, 'python')}\n{name}:\n{fenced(kernel, fence)}"
